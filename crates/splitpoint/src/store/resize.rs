//! Splits and merges buckets, after the commit of the change that makes it due.

use std::ops::Range;

use super::{Store, Writer};
use crate::error::{Error, Result};
use crate::format::Addr;
use crate::index::line::LINE_BYTES;
use crate::index::split::{merge, split};
use crate::live::LineWindow;
use crate::region::LivePool;

/// Upper bound of the splits that one insert does, so that a hostile chain cannot make one insert
/// arbitrarily slow.
const SPLITS_PER_INSERT: u32 = 2;
/// Most buckets whose pages are prepared at a time: 2 MiB, a huge page.
const PREPARED_LINES_MAX: u64 = (2 << 20) / LINE_BYTES;
/// Share of a doubling that is prepared at a time: half a piece of the index.
const PREPARED_SHARE: u64 = 16;
/// Size of the table, in buckets, from which on pages are prepared.
const PREPARED_FROM: u64 = 1 << 15;
/// A bucket is merged when there are fewer keys than this share of the fill factor, in percent.
const MERGE_PERCENT: u64 = 35;
/// [`Store::shrink_index`] begins to merge below `SPARSE_PERCENT`, and goes on up to
/// `DENSE_PERCENT`.
const SPARSE_PERCENT: u64 = 50;
const DENSE_PERCENT: u64 = 90;
/// Buckets that `shrink_index` merges between two releases of the lock.
const MERGES_WITH_LOCK: u32 = 256;

impl Store {
    /// Splits after an insert: when the mean is above the fill factor, and when a chain began its
    /// second overflow line.
    #[inline(always)]
    pub(super) fn split_if_due(&self, writer: &mut Writer, begins_second_line: bool) {
        let split_count = u32::from(begins_second_line) + u32::from(self.is_split_due(writer));
        debug_assert!(split_count <= SPLITS_PER_INSERT);
        for _ in 0..split_count {
            // A split that fails, for example on a full disk, only leaves a longer chain: the pair
            // is stored, and the next insert tries again.
            if self.split_one(writer).is_err() {
                break;
            }
        }
    }

    /// Does the splits that [`split_if_due`](Self::split_if_due) would have done after each of
    /// `new_count` inserts, of which `second_line_count` began a second overflow line.
    pub(super) fn split_after_run(
        &self,
        writer: &mut Writer,
        new_count: u64,
        second_line_count: u64,
    ) {
        debug_assert!(second_line_count <= new_count);
        for i in 0..new_count + second_line_count {
            let is_asked = i < second_line_count || self.is_split_due(writer);
            if !is_asked || self.split_one(writer).is_err() {
                break;
            }
        }
    }

    /// Returns whether the mean number of keys per bucket is above the fill factor.
    #[inline(always)]
    fn is_split_due(&self, writer: &Writer) -> bool {
        // Counts that overflow a word can only come from a damaged file.
        let limit = self.fill_thousandths.saturating_mul(self.shape().geometry.bucket_count());
        writer.state.record_count.saturating_mul(1000) > limit
    }

    /// Splits as many buckets in advance as `new_count` more keys will make due.
    pub(super) fn split_for(&self, writer: &mut Writer, new_count: u64) -> Result<()> {
        let thousandths = u128::from(writer.state.record_count + new_count) * 1000;
        let mut bucket_count = self.shape().geometry.bucket_count();
        while thousandths > u128::from(self.fill_thousandths) * u128::from(bucket_count) {
            self.split_one(writer)?;
            let before = std::mem::replace(&mut bucket_count, self.shape().geometry.bucket_count());
            if bucket_count == before {
                break;
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn split_one(&self, writer: &mut Writer) -> Result<()> {
        let region = &self.region;
        let Some(plan) = self.shape().geometry.plan_split() else { return Ok(()) };
        self.group.check()?;
        let bucket_count = plan.upper.0 + 1;
        writer.extents.reserve_lines(LineWindow::Buckets, bucket_count)?;
        if let Some(lines) = lines_to_prepare(bucket_count) {
            writer.extents.prepare_lines(LineWindow::Buckets, lines);
        }
        self.capture(writer, plan.lower);
        // `prepare_lines` and `capture` return no errors. After an error of the device nothing more
        // may be stored, so check again.
        self.group.check()?;
        let mut line_count = 4;
        loop {
            writer.extents.reserve_overflow_lines(line_count)?;
            let mut hash_of = |addr: Addr| Ok(self.hash_of(region.view.pair(addr)?.key));
            let pool = &mut LivePool(&region.windows);
            match split(&region.windows, pool, &plan, &mut writer.scratch, &mut hash_of) {
                Err(Error::Full { .. }) if line_count < 1 << 32 => line_count *= 8,
                Err(other) => return Err(other),
                Ok(()) => break,
            }
        }
        assert_eq!(self.shape().geometry, plan.after, "a split adds its bucket");
        // The next bucket is split a few puts from now: prefetch its line and the new one, which
        // are not in the cache.
        if let Some(next) = self.shape().geometry.plan_split() {
            region.windows.prefetch_bucket(next.lower);
            region.windows.prefetch_bucket(next.upper);
        }
        Ok(())
    }

    /// Merges buckets after a delete, when the mean is far below the fill factor.
    pub(super) fn merge_if_due(&self, writer: &mut Writer) {
        self.merge_below(writer, MERGE_PERCENT);
    }

    /// Merges the last bucket if there are fewer keys than `percent` of the fill factor; returns whether it
    /// did.
    pub(super) fn merge_below(&self, writer: &mut Writer, percent: u64) -> bool {
        let geometry = self.shape().geometry;
        if !self.is_below(writer, percent) || self.group.check().is_err() {
            return false;
        }
        let Some(plan) = geometry.plan_merge() else { return false };
        let region = &self.region;
        assert_eq!(plan.upper.0 + 1, geometry.bucket_count(), "the last bucket is merged");
        self.capture(writer, plan.lower);
        self.capture(writer, plan.upper);
        let mut line_count = 4;
        // As with a split, a merge that fails is tried again later.
        while self.group.check().is_ok()
            && writer.extents.reserve_overflow_lines(line_count).is_ok()
        {
            match merge(&region.windows, &mut LivePool(&region.windows), &plan, &mut writer.scratch)
            {
                Err(Error::Full { .. }) if line_count < 1 << 32 => line_count *= 8,
                Err(_) => return false,
                Ok(()) => {
                    writer.extents.give_back_lines();
                    return true;
                }
            }
        }
        false
    }

    fn is_below(&self, writer: &Writer, percent: u64) -> bool {
        let limit = u128::from(self.fill_thousandths * percent / 100)
            * u128::from(self.shape().geometry.bucket_count());
        u128::from(writer.state.record_count) * 1000 < limit
    }

    /// Returns whether [`shrink_index`](Self::shrink_index) would merge buckets.
    pub(crate) fn is_index_sparse(&self, writer: &Writer) -> bool {
        // A table that was created large in advance has not shrunk.
        let has_died = writer.state.dead_bytes + writer.retired_bytes > 0;
        let may_have_shrunk = has_died || writer.superblock.is_compacted;
        may_have_shrunk
            && self.shape().geometry.bucket_count() > 1
            && self.is_below(writer, SPARSE_PERCENT)
    }

    /// Merges the buckets of a table that has shrunk, down to the number that a growing table with
    /// as many keys would have, and frees the pieces that no bucket needs. Deletes alone keep both,
    /// for a table that grows again.
    ///
    /// # Errors
    ///
    /// Those of taking the writer's lock, and those of a handle that may not change the store.
    pub(crate) fn shrink_index(&self) -> Result<()> {
        if !self.is_index_sparse(&*self.lock()?) {
            return Ok(());
        }
        loop {
            let mut writer = self.lock_for_change()?;
            // A sync may have failed meanwhile, after which nothing more is stored to the file.
            self.group.check()?;
            let is_merged =
                (0..MERGES_WITH_LOCK).all(|_| self.merge_below(&mut writer, DENSE_PERCENT));
            if !is_merged {
                self.group.check()?;
                writer.extents.give_back_spare_pieces();
                return Ok(());
            }
        }
    }
}

/// Returns which lines to prepare when a table has reached `bucket_count` buckets, if any. Lines
/// are prepared early enough, but only a few at a time, since prepared lines take room in the file.
fn lines_to_prepare(bucket_count: u64) -> Option<Range<u64>> {
    let step_at = |count: u64| (1 << count.ilog2()) / PREPARED_SHARE;
    let step = step_at(bucket_count.max(PREPARED_FROM)).min(PREPARED_LINES_MAX);
    if bucket_count < PREPARED_FROM || bucket_count & (step - 1) != 0 {
        return None;
    }
    let step_before = step_at(bucket_count - 1).min(PREPARED_LINES_MAX);
    Some(bucket_count + step_before..bucket_count + 2 * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::piece::{lines_of, piece_count_for};

    #[test]
    fn every_bucket_is_prepared_once_and_few_are_ahead_of_the_table() {
        let mut end = None;
        for bucket_count in 1..1_u64 << 21 {
            let Some(lines) = lines_to_prepare(bucket_count) else { continue };
            assert!(lines.start > bucket_count && lines.end > lines.start);
            assert_eq!(lines.start, end.unwrap_or(lines.start), "none is left out");
            end = Some(lines.end);
            let reserved = lines_of(piece_count_for(lines.end));
            assert!(reserved <= bucket_count + bucket_count / 4, "{reserved} of {bucket_count}");
        }
        assert!(end >= Some(1 << 21));
    }
}
