//! Decide which records of batches count, in a log that may have gaps.
//!
//! Where the log is whole, the rule is that of recovery: a batch counts with the COMMIT behind it.
//! A gap may have taken that COMMIT, or some of the records that it counts. What is left of a batch
//! beside a gap is saved, and counted as in doubt: a change too many can be found and undone, one
//! that is missing cannot be brought back.

use super::marks::Marks;
use super::reader::Reader;
use super::segments::{Log, Part};
use crate::error::Result;
use crate::log::batch::{CutBatches, Standing, is_member};
use crate::log::record::Record;
use crate::log::segment::Segment;

/// How many records of batches have not simply counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Undone {
    /// No COMMIT made them count.
    pub(super) uncommitted_count: u64,
    /// They count although their COMMIT, or others of their batch, may be lost.
    pub(super) doubtful_count: u64,
}

/// Marks the records of `log` that no COMMIT makes count. `is_end_sure` says that nothing is missing
/// behind the last record.
pub(super) fn decide(reader: &mut Reader<'_>, log: &mut Log, is_end_sure: bool) -> Result<Undone> {
    if !log.parts.iter().any(|part| part.scan.has_batches) {
        return Ok(Undone::default());
    }
    let mut pass = Pass::default();
    for (i, part) in log.parts.iter().enumerate() {
        pass.begin(part, i.checked_sub(1).map(|before| &log.parts[before].segment));
        pass.uncommitted.push(part.scan.has_batches.then(|| Marks::new(&part.segment)));
        part.each_record(reader, |_, record| {
            pass.add(part, record);
            Ok(())
        })?;
    }
    if !is_end_sure {
        pass.cut();
    }
    for (part, uncommitted) in log.parts.iter_mut().zip(pass.uncommitted) {
        part.uncommitted = uncommitted;
    }
    Ok(pass.undone)
}

/// A record of a batch: the number of its part of the log, and its offset.
type Member = (usize, u64);

/// The records of a log in their order.
#[derive(Debug, Default)]
struct Pass {
    batches: CutBatches<Member>,
    /// Where the log has got to.
    lsn: u64,
    /// For each part so far that has any: its records that nothing has made count.
    uncommitted: Vec<Option<Marks>>,
    undone: Undone,
}

impl Pass {
    /// Goes on with the next part.
    fn begin(&mut self, part: &Part, previous: Option<&Segment>) {
        let link = previous.and_then(|previous| {
            let link = previous.link_before(&part.segment)?;
            Some(previous.lsn_at(link))
        });
        // If all that is missing is the LINK, no COMMIT is.
        if link == Some(self.lsn) {
            self.lsn = part.segment.base_lsn;
        }
        self.advance(part.segment.base_lsn);
    }

    /// Goes on to `lsn`, across a gap if nothing has been read up to there.
    fn advance(&mut self, lsn: u64) {
        if self.lsn != lsn {
            self.cut();
        }
        self.lsn = lsn;
    }

    /// Takes the next record, of the part that was begun last.
    fn add(&mut self, part: &Part, record: &Record<'_>) {
        self.advance(part.segment.lsn_at(record.offset));
        self.lsn += record.bytes.len() as u64;
        let member = is_member(record).then(|| (self.uncommitted.len() - 1, record.offset));
        if let Some(member) = member {
            set(&mut self.uncommitted, member, true);
            self.undone.uncommitted_count += 1;
        }
        let Self { batches, uncommitted, undone, .. } = self;
        batches.add(record, member, |member, standing| {
            undone.release(uncommitted, member, standing);
        });
    }

    /// Makes all count that is held back: nothing shows whether it does.
    fn cut(&mut self) {
        let Self { batches, uncommitted, undone, .. } = self;
        batches.cut(|member, standing| undone.release(uncommitted, member, standing));
    }
}

impl Undone {
    /// Makes a member of a batch count.
    fn release(&mut self, uncommitted: &mut [Option<Marks>], member: Member, standing: Standing) {
        set(uncommitted, member, false);
        self.uncommitted_count -= 1;
        self.doubtful_count += u64::from(standing == Standing::InDoubt);
    }
}

/// Sets or clears the mark of a member.
fn set(uncommitted: &mut [Option<Marks>], (part, offset): Member, is_marked: bool) {
    if let Some(marks) = &mut uncommitted[part] {
        marks.set(offset, is_marked);
    }
}
