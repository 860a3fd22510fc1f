//! Batches: records that are committed together or not at all.
//!
//! The records of a batch are flagged; the COMMIT record after them has their number. Flagged
//! records without a COMMIT were left by a crash, or by an error in the middle of a batch: they
//! stay in the log and have no effect.

use super::record::{Record, RecordKind};
use crate::checksum;
use crate::format::u64_at;

/// Size in bytes of a COMMIT record: header, count, checksum.
pub(crate) const COMMIT_BYTES: u64 = 8 + 16;

/// The checksum of a batch, over the checksums of its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchCrc {
    count: u64,
    crc: u32,
}

impl BatchCrc {
    /// Adds the next record, by its checksum.
    #[must_use]
    pub(crate) fn with(self, record_crc: u32) -> Self {
        debug_assert!(self.count > 0 || self.crc == 0, "a batch begins with no record");
        let crc = checksum::crc32c_append(self.crc, &record_crc.to_le_bytes());
        Self { count: self.count + 1, crc }
    }

    /// Returns the value of the COMMIT record.
    pub(crate) fn encode(self) -> [u8; 16] {
        assert!(self.count > 0, "a COMMIT is of one record or more");
        let mut value = [0; 16];
        value[..8].copy_from_slice(&self.count.to_le_bytes());
        value[8..12].copy_from_slice(&self.crc.to_le_bytes());
        value
    }

    /// Decodes the value of a COMMIT record; `None` if it is malformed.
    fn decode(record: &Record<'_>) -> Option<Self> {
        let value = record.value();
        let is_sound = value.len() == 16 && record.key().is_empty();
        is_sound.then(|| Self { count: u64_at(value, 0), crc: u64_at(value, 8) as u32 })
    }
}

/// Holds back the effects of the records of a batch until their COMMIT is read.
#[derive(Clone, Debug)]
pub(crate) struct Batches<T> {
    held: Vec<(T, u32)>,
}

impl<T> Default for Batches<T> {
    fn default() -> Self {
        Self { held: Vec::new() }
    }
}

impl<T> Batches<T> {
    /// Returns whether nothing is held back.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Adds the next record of the log, of any kind, with its effect, if any. Calls `committed` for
    /// each effect that is committed by it.
    #[inline]
    pub(crate) fn add(
        &mut self,
        record: &Record<'_>,
        effect: Option<T>,
        mut committed: impl FnMut(T),
    ) {
        if !record.header.is_in_transaction
            && !matches!(record.header.kind, RecordKind::Commit | RecordKind::Link)
        {
            self.held.clear();
            if let Some(effect) = effect {
                committed(effect);
            }
            return;
        }
        self.add_to_batch(record, effect, committed);
    }

    #[cold]
    fn add_to_batch(&mut self, record: &Record<'_>, effect: Option<T>, committed: impl FnMut(T)) {
        match (record.header.kind, effect) {
            (RecordKind::Commit, _) => {
                if let Some(expected) = BatchCrc::decode(record) {
                    self.commit(expected, committed);
                }
                self.held.clear();
            }
            (RecordKind::Link, _) | (_, None) => {}
            (_, Some(effect)) => {
                self.held.push((effect, record.crc()));
            }
        }
    }

    /// If the COMMIT is valid, it commits the last `expected.count` records that are held back.
    fn commit(&mut self, expected: BatchCrc, committed: impl FnMut(T)) {
        let count = usize::try_from(expected.count).unwrap_or(usize::MAX);
        let Some(first) = self.held.len().checked_sub(count) else { return };
        let own = &self.held[first..];
        let found = own.iter().fold(BatchCrc::default(), |batch, &(_, crc)| batch.with(crc));
        if found == expected {
            self.held.drain(first..).map(|(effect, _)| effect).for_each(committed);
            debug_assert_eq!(self.held.len(), first, "each record counts once");
        }
    }
}

/// For logs with missing parts, and for walks that begin in the middle.
impl<T> Batches<T> {
    /// Returns whether `record` commits more records than are held back.
    pub(crate) fn is_short_of(&self, record: &Record<'_>) -> bool {
        let is_commit = record.header.kind == RecordKind::Commit;
        let commit = BatchCrc::decode(record).filter(|_| is_commit);
        commit.is_some_and(|commit| self.held.len() < commit.count as usize)
    }

    /// Gives out all that is held back.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> {
        self.held.drain(..).map(|(effect, _)| effect)
    }
}

/// As [`Batches`], for a log of which parts may be missing.
///
/// A part that is missing may have held the COMMIT of the records before it, or some of the
/// records of the COMMIT behind it: nothing shows whether what is left of such a batch counts.
#[derive(Clone, Debug)]
pub(crate) struct CutBatches<T> {
    batches: Batches<T>,
    /// Whether the batch that is held back may have begun in a part that is missing.
    is_cut: bool,
}

/// Whether the record of a batch counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is of no batch, or its batch is whole.
    Counts,
    /// The part of the log that decides it is missing.
    InDoubt,
}

impl<T> Default for CutBatches<T> {
    fn default() -> Self {
        Self { batches: Batches::default(), is_cut: false }
    }
}

impl<T> CutBatches<T> {
    /// Goes on behind a part that is missing: what is held back is in doubt, and so may be what
    /// comes next.
    pub(crate) fn cut(&mut self, mut take: impl FnMut(T, Standing)) {
        self.batches.take().for_each(|effect| take(effect, Standing::InDoubt));
        debug_assert!(self.batches.is_empty(), "nothing is held back across a missing part");
        self.is_cut = true;
    }

    /// As [`Batches::add`], with whether what is given out counts.
    #[inline]
    pub(crate) fn add(
        &mut self,
        record: &Record<'_>,
        effect: Option<T>,
        mut take: impl FnMut(T, Standing),
    ) {
        if self.is_cut {
            self.add_behind_cut(record, &mut take);
        }
        self.batches.add(record, effect, |effect| take(effect, Standing::Counts));
    }

    #[cold]
    fn add_behind_cut(&mut self, record: &Record<'_>, take: &mut impl FnMut(T, Standing)) {
        debug_assert!(self.is_cut);
        if self.batches.is_short_of(record) {
            self.batches.take().for_each(|effect| take(effect, Standing::InDoubt));
        }
        self.is_cut = is_member(record) || record.header.kind == RecordKind::Link;
    }
}

/// Returns whether a record is one of a batch, and not the one that commits it or leads on.
pub(crate) fn is_member(record: &Record<'_>) -> bool {
    let is_between = matches!(record.header.kind, RecordKind::Commit | RecordKind::Link);
    record.header.is_in_transaction && !is_between
}
