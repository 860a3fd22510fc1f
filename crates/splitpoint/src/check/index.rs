//! The pass of a check over the index: every slot against the log, and the log against the slots.
//!
//! The slots must name just the records that the log says are live. One damage shows in more than
//! one place, and is counted once:
//!
//! - A chain in which a damage was noted hides records: that they have no slot follows from it.
//! - Of a lost record the slot is still there. An older version of its key has no slot, and looks
//!   live, since the record that replaced it is lost; so does a pair whose delete is lost. As many
//!   slots as the live header counts keys are the proof that no slot is missing.

use super::addr_set::AddrSet;
use super::{Check, CheckReport, CheckStage};
use crate::atomic::Ordering;
use crate::error::{Error, Result};
use crate::format::{Addr, LIVE_OFFSET, SegmentHeader, SegmentKind};
use crate::index::Lines;
use crate::index::line::{LINE_BYTES, Line, LineNumber, NEXT_OFFSET};
use crate::index::lookup::{find, for_each_line};
use crate::index::shape::Shape;
use crate::index::slot::{Slot, Tag};
use crate::linear::{BucketIndex, Geometry};
use crate::live::{FREE_LINES_OFFSET, LINES_USED_OFFSET, LineWindow};
use crate::region::{Region, View};

/// Buckets between two reports of progress.
const BUCKETS_TOLD: u64 = 1 << 13;

/// The pass over the index.
struct Pass<'c, 'a> {
    check: &'c mut Check<'a>,
    region: &'a Region,
    geometry: Geometry,
    /// Which overflow lines are in a chain, by their number.
    lines: Vec<bool>,
    slot_count: u64,
    /// Buckets in whose chain a damage was noted; as addresses, for want of another set.
    damaged: AddrSet,
    has_damaged: bool,
}

impl Check<'_> {
    /// Compares every slot with the records that the log says are live, of which the live header
    /// counts `stored_count`.
    pub(super) fn read_index(&mut self, stored_count: u64) -> Result<()> {
        let region = &self.store.region;
        let geometry = Shape::of_word(region.windows.shape().load(Ordering::Acquire)).geometry;
        let mut pass = Pass {
            check: self,
            region,
            geometry,
            lines: vec![false; region.windows.line_count(LineWindow::Overflow) as usize + 1],
            slot_count: 0,
            damaged: AddrSet::for_file(geometry.bucket_count() * 8),
            has_damaged: false,
        };
        let bytes_total = geometry.bucket_count() * LINE_BYTES;
        for bucket in (0..geometry.bucket_count()).map(BucketIndex) {
            pass.read_chain(bucket);
            if bucket.0.is_multiple_of(BUCKETS_TOLD) {
                pass.check.tell(CheckStage::Index, bucket.0 * LINE_BYTES, bytes_total)?;
            }
        }
        pass.check_free_lines();
        pass.check_missing(stored_count);
        pass.check.tell(CheckStage::Index, bytes_total, bytes_total)
    }
}

impl Pass<'_, '_> {
    fn read_chain(&mut self, bucket: BucketIndex) {
        let damage_count = self.check.report.damage_count;
        let region = self.region;
        let (mut is_own, mut last_offset) = (true, 0);
        let walked = for_each_line(&region.windows, bucket, |number, line| {
            if is_own {
                last_offset = self.offset_of(bucket, number);
                // What comes behind a line of another chain is of that one, too.
                is_own = self.read_line(bucket, number, line, last_offset);
            }
        });
        if let Err(Error::Corrupt { what, expected, found, .. }) = walked
            && is_own
        {
            self.check.report.note(what, last_offset + NEXT_OFFSET, expected, found);
        }
        if self.check.report.damage_count != damage_count {
            self.damaged.set(Addr(bucket.0), true);
            self.has_damaged = true;
        }
    }

    /// Returns where a line of the chain of `bucket` is in the file, 0 for one in memory.
    fn offset_of(&self, bucket: BucketIndex, number: Option<LineNumber>) -> u64 {
        let (window, index) = match number {
            None => (LineWindow::Buckets, bucket.0),
            Some(number) => (LineWindow::Overflow, u64::from(number.0) - 1),
        };
        let region = self.region;
        if region.is_private() { 0 } else { region.windows.line_offset(window, index) }
    }

    /// Checks the slots of a line; returns whether it is of this chain and no other.
    fn read_line(
        &mut self,
        bucket: BucketIndex,
        number: Option<LineNumber>,
        line: &Line,
        offset: u64,
    ) -> bool {
        if let Some(number) = number
            && std::mem::replace(&mut self.lines[number.0 as usize], true)
        {
            self.check.report.note("overflow line in two chains", offset, 1, 2);
            return false;
        }
        self.check.report.line_count += 1;
        for (i, slot) in line.slots_in_use() {
            if self.check.left.is_stray(line, i) {
                continue;
            }
            self.slot_count += 1;
            self.check_slot(slot, bucket, offset + i as u64 * 8);
        }
        true
    }

    fn check_slot(&mut self, slot: Slot, bucket: BucketIndex, offset: u64) {
        let Check { store, report, live, doubtful, losses, .. } = &mut *self.check;
        let (region, addr) = (self.region, slot.addr());
        if !live.has(addr) {
            let is_known = doubtful.has(addr);
            if !is_known && !losses.has(&region.view, addr) {
                report.note("slot without a live record", offset, 0, slot.0);
                return;
            }
            if !losses.is_added(addr)
                && let Err(error) = verify_big(&region.view, addr)
            {
                report.note_error(&error);
            }
            if !is_known {
                report.lost_slot_count += 1;
                return;
            }
        }
        match region.view.pair(addr) {
            Ok(pair) => {
                let hash = store.hash_of(pair.key);
                let expected = Slot::new(Tag::of_hash(hash), addr);
                let home = self.geometry.bucket_of(hash);
                // One that is wrong does not stand for the record: that may have its own.
                if slot != expected {
                    report.note("tag of a slot", offset, expected.0, slot.0);
                } else if home != bucket {
                    report.note("bucket of a slot", offset, home.0, bucket.0);
                } else {
                    live.set(addr, false);
                    doubtful.set(addr, false);
                }
            }
            Err(error) => report.note_error(&error),
        }
    }

    /// Checks that the lines that will be handed out are in no chain. Lines in neither are lost until
    /// the index is built again, which does no harm.
    fn check_free_lines(&mut self) {
        let (region, report) = (self.region, &mut self.check.report);
        let live = region.live();
        let used = live.lines_used();
        let last = self.lines.iter().rposition(|&is_in_chain| is_in_chain).unwrap_or(0) as u64;
        if last > used {
            report.note("overflow lines handed out", LINES_USED_OFFSET, last, used);
        }
        let (mut next, count) = live.free_lines();
        let mut found_count = 0;
        while let Some(number) = next {
            let is_free = u64::from(number.0) <= used
                && !std::mem::replace(&mut self.lines[number.0 as usize], true);
            let Some(line) = region.windows.overflow(number).filter(|_| is_free) else {
                report.note("free overflow line", FREE_LINES_OFFSET, used, number.0.into());
                return;
            };
            found_count += 1;
            next = line.next_free();
        }
        // A killed process may have left a count that is too low.
        if found_count < count {
            report.note("free overflow lines", FREE_LINES_OFFSET, found_count, count);
        }
    }

    /// Looks at the records for which no slot was found, and at the count of the live header.
    fn check_missing(&mut self, stored_count: u64) {
        let live = std::mem::replace(&mut self.check.live, AddrSet::for_file(0));
        let (mut hidden_count, mut replaced_count, mut unexplained_count) = (0, 0, 0);
        let mut unexplained = Vec::new();
        for addr in live.iter() {
            match self.reason(addr) {
                Reason::Hidden => hidden_count += 1,
                Reason::Replaced => replaced_count += 1,
                Reason::Unknown => {
                    unexplained_count += 1;
                    if unexplained.len() < CheckReport::DAMAGES_MAX {
                        unexplained.push(addr);
                    }
                }
            }
        }
        let is_whole = !self.check.losses.is_any();
        // Slots that the count asks for; without them, all others were deleted by lost records.
        let lacking_count = stored_count.saturating_sub(self.slot_count + hidden_count);
        let missing_count =
            if is_whole { unexplained_count } else { unexplained_count.min(lacking_count) };
        let Check { report, record_count, .. } = &mut *self.check;
        report.note_many("record missing in the index", &unexplained, missing_count);
        report.slotless_count = hidden_count + replaced_count + unexplained_count - missing_count;
        let count = if is_whole { *record_count } else { self.slot_count + missing_count };
        if count != stored_count && (is_whole || !self.has_damaged) {
            report.note("record count", LIVE_OFFSET, count, stored_count);
        }
    }

    /// Returns why the record at `addr`, which the log says is live, may have no slot.
    fn reason(&self, addr: Addr) -> Reason {
        let (region, check) = (self.region, &*self.check);
        let Ok(pair) = region.view.pair(addr) else { return Reason::Unknown };
        let hash = check.store.hash_of(pair.key);
        if self.damaged.has(Addr(self.geometry.bucket_of(hash).0)) {
            return Reason::Hidden;
        }
        if !check.losses.is_any() {
            return Reason::Unknown;
        }
        // A slot with its tag for a lost record, or one of its key: a later version.
        let later = find(&region.windows, hash, |other| {
            let is_later = check.losses.has(&region.view, other)
                || region.view.pair(other).is_ok_and(|other| other.key == pair.key);
            Ok(is_later.then_some(()))
        });
        if matches!(later, Ok(Some(()))) { Reason::Replaced } else { Reason::Unknown }
    }
}

/// Verifies a record that lies alone in its segment, if this is one: the pass over the log did not
/// come to it.
fn verify_big(view: &View, addr: Addr) -> Result<()> {
    let segment_offset = addr.offset().saturating_sub(SegmentHeader::BYTES);
    let Ok(header) = view.segment(segment_offset) else { return Ok(()) };
    if header.kind != SegmentKind::Big {
        return Ok(());
    }
    let end = segment_offset + header.segment_bytes;
    view.record_before(addr.offset(), end)?.verify(header.salt)
}

/// Why a record has no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// A damage was noted in its chain.
    Hidden,
    /// A slot is there for a later version; the record that replaced this one is lost.
    Replaced,
    /// A lost record may have deleted it, or its slot is missing.
    Unknown,
}
