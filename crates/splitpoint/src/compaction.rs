//! Decides what to compact, how fast, and when space may be reused. Pure: no I/O.
//!
//! Compaction moves the live records of a segment, the *victim*, to the end of another one, and
//! then reuses the space of the victim. The writer does this, a little with each change: the
//! changes that make compaction necessary pay for it, so there is no backlog and no pause.
//!
//! ```text
//! victim   | dead | LIVE | dead | dead | LIVE | LINK |     emptied, waits, is reused
//!                    |                    `-------------.
//!                    `-------------.                    |
//! compacted head   | moved | moved | LIVE               LIVE ...
//! ```
//!
//! # Invariants
//!
//! - A segment is emptied only by reading it to its end and looking up every record in the index.
//! - Only [`Compaction::take_reusable`] decides that space may be reused.
//!
//! # Not here
//!
//! `store` reads and moves the records.
//!
//! # Source
//!
//! Cost and benefit of cleaning a segment: Rosenblum and Ousterhout 1992.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

use crate::moments::PastMoments;
use crate::segments::{SegmentTable, SegmentUse, TableSegment};
use crate::testing::mutant::{self, Mutant};

/// Changes between two steps.
const CHANGES_PER_STEP: u32 = 16;
/// Bytes of victims that a byte of a change pays for: this many, and up to six times as many when
/// far more space is in use than wanted.
const PACE: u64 = 3;
const HURRY_MAX: u64 = 6;
/// Smallest dead share of a victim, in thousandths.
const DEAD_THOUSANDTHS_MIN: u64 = 30;
/// Largest number of bytes of victims that a step reads, unless a segment is larger.
const STEP_BYTES_MAX: u64 = 64 << 10;
/// Number of units up to which all segments are examined to choose a victim: 64 GiB with units of
/// the usual size. For a larger table, a sample of `UNITS_SAMPLED` units is examined first.
const UNITS_LOOKED_AT: u64 = 1 << 20;
const UNITS_SAMPLED: u64 = 64;
/// Number of checks of what horizons hold back, while as much space comes to wait as they may hold.
const HELD_LOOKS: u64 = 64;
/// The share of the live bytes (as a divisor) up to which waiting and recently freed space keeps
/// its pages.
const SPARE_SHARE: u64 = 4;
/// Bytes that are emptied for each byte by which the recent peak of waiting bytes decays.
const PEAK_FADING: u64 = 2;
/// Bound for that peak, as a multiple of the live bytes.
const PEAK_LIVE_MAX: u64 = 8;
/// Number of checks of what readers hold back, while the waiting space doubles and none can be
/// reused.
const PEAK_LOOKS: u64 = 16;
/// The recent maximum of the live bytes counts instead of the present value, up to this share (as a
/// divisor) above it: deletes may let the log grow to 7/6 of what is wanted. Without this,
/// compaction reads four or five records, most of them live, for each delete at random.
const RECENT_LIVE_SHARE: u64 = 6;
/// Bytes that puts append for each byte by which that maximum decays.
const RECENT_LIVE_FADING: u64 = 2;
/// The share of the live bytes (as a divisor) that must have been emptied before a checkpoint is
/// begun to free it. Further segments are emptied while the checkpoint is written, so about twice
/// as much waits at most.
const WAITING_SHARE: u64 = 8;
/// Bytes that must have been emptied for each byte of a checkpoint.
const WAITING_BY_IMAGE: u64 = 2;
/// Smallest number of emptied bytes for which a checkpoint is begun.
pub(crate) const WAITING_BYTES_MIN: u64 = 2 << 20;

/// The state of compaction: the victim, and the emptied segments that wait to be reused.
#[derive(Debug)]
pub(crate) struct Compaction {
    /// The wanted live share of the log, in thousandths.
    live_thousandths: u64,
    /// The segment that is being emptied.
    pub(crate) victim: Option<Victim>,
    /// Emptied segments, oldest first.
    waiting: VecDeque<Emptied>,
    waiting_bytes: u64,
    /// Recent peak of the bytes that waited only for the grace periods of readers.
    waiting_bytes_peak: u64,
    /// Number of waiting bytes from which it is worth updating the peak.
    peak_looked_at_bytes: u64,
    /// Number of segments ever retired, and its value when a horizon or moment was last seen to
    /// hold space.
    retired_count: u64,
    looked_back_count: u64,
    /// Bytes emptied since the last checkpoint was begun, which wait for the next one.
    unnamed_bytes: u64,
    past: PastHorizon,
    past_moments: PastMoments,
    /// Number of waiting bytes from which it is worth checking who holds them back.
    held_looked_at_bytes: u64,
    changes_left: u32,
    /// Bytes that were appended, and bytes that died, by changes since the last step.
    appended_bytes: u64,
    buried_bytes: u64,
    /// Bytes of victims that changes have paid for but that have not been read yet.
    owed_bytes: u64,
    /// Decaying maximum of the live bytes, as seen by the steps of this handle.
    recent_live_bytes: u64,
    /// Bytes moved since the store was opened.
    moved_bytes: u64,
    /// Whether the log is no longer complete: something was moved or emptied, or a key was deleted
    /// without a tombstone.
    is_log_incomplete: bool,
    /// Whether there was no victim, so that the search is suspended until more bytes die.
    is_resting: bool,
    /// State of the generator that samples segments.
    sample_state: u64,
}

/// A segment whose live records are being moved away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    pub(crate) segment: TableSegment,
    /// Offset of the next record to examine.
    pub(crate) at: u64,
    /// Salt of its records.
    pub(crate) salt: u64,
    /// Bytes of the records before `at`.
    pub(crate) record_bytes: u64,
}

/// The largest stamp such that nobody needs what died at that stamp or before.
///
/// A snapshot pins a record only while it reads it. So the space that its horizon held waits for a
/// grace period after the horizon has closed, because a read in progress, or a value that it has
/// returned, may still use it.
#[derive(Clone, Copy, Debug, Default)]
struct PastHorizon {
    stamp: u64,
    /// The next stamp, and the ticket of the grace period after which it becomes valid.
    next: Option<(u64, u64)>,
}

/// A segment that no slot leads to.
#[derive(Clone, Debug)]
struct Emptied {
    segment: Range<u64>,
    is_big: bool,
    death: Death,
    /// Low half of the sequence number of the segment, to recognize it later; 0 if that is not
    /// needed.
    sequence: u64,
    /// Number of rounds over the moments of other processes that had begun by then.
    round: u64,
}

/// When the last record of a segment died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Death {
    /// The end of the log at that time.
    pub(crate) lsn: u64,
    /// Number of checkpoints begun by then.
    pub(crate) checkpoint: u64,
    /// The ticket of the grace period.
    pub(crate) ticket: u64,
    /// The stamp for the horizons.
    pub(crate) stamp: u64,
}

/// The conditions under which the writer looks for space to reuse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The log is durable up to this number.
    pub(crate) durable_lsn: u64,
    /// The number of the checkpoint from which a recovery would replay the log, counted from 1
    /// since the store was opened; 0 if unknown.
    pub(crate) replay_checkpoint: u64,
    /// The ticket below which every grace period is over.
    pub(crate) unpinned: u64,
    /// The largest stamp such that no horizon needs what died then, nor any read of a closed
    /// horizon.
    pub(crate) past_horizon: u64,
    /// The log sequence number below which no moment of another process needs what was emptied.
    pub(crate) past_moments: u64,
}

impl Moment {
    /// Returns the conditions of a table in memory, which does not survive the process: nothing
    /// need be durable, and nothing is replayed.
    pub(crate) fn in_memory(unpinned: u64, past_horizon: u64) -> Self {
        let (durable_lsn, replay_checkpoint) = (u64::MAX, u64::MAX);
        Self { durable_lsn, replay_checkpoint, unpinned, past_horizon, past_moments: u64::MAX }
    }
}

impl Emptied {
    fn bytes(&self) -> u64 {
        self.segment.end - self.segment.start
    }

    /// Returns whether only horizons or moments keep the segment from being reused.
    fn is_only_held(&self, moment: &Moment) -> bool {
        self.is_reusable(&Moment { past_horizon: u64::MAX, past_moments: u64::MAX, ..*moment })
    }

    /// Returns whether the space of the segment may be reused. The first condition, that the
    /// segment is *emptied* (read to its end, with every live record moved), holds for every
    /// element of the list; these are the others.
    fn is_reusable(&self, moment: &Moment) -> bool {
        let Death { lsn, checkpoint, ticket, stamp } = self.death;
        // Otherwise recovery could end at a commit at which a record in the segment is still live.
        let is_durable = lsn <= moment.durable_lsn || mutant::is_made(Mutant::ReusesUndurable);
        // Otherwise replay could meet the name of a record that no longer exists, or load a
        // checkpoint that lists the segment as one with records.
        let is_replayed_by_none = checkpoint < moment.replay_checkpoint
            || mutant::is_made(Mutant::ReusesReplayed)
            || mutant::is_made(Mutant::ReusesUndurable);
        // A scan holds a pin as well.
        let is_unpinned = ticket < moment.unpinned
            || mutant::is_made(Mutant::ReusesPinned)
            || mutant::is_made(Mutant::ReusesUnderScan);
        // A snapshot that is taken later never reads this segment.
        let is_behind_horizon =
            stamp <= moment.past_horizon || mutant::is_made(Mutant::ReusesUnderScan);
        let is_behind_moments =
            lsn < moment.past_moments || mutant::is_made(Mutant::ForgetsMoments);
        is_durable && is_replayed_by_none && is_unpinned && is_behind_horizon && is_behind_moments
    }
}

impl Compaction {
    /// Creates the idle state. `live_share` is the wanted live share of the log; `seed` seeds the
    /// sampling.
    pub(crate) fn new(live_share: f64, seed: u64) -> Self {
        assert!((0.5..=0.9).contains(&live_share), "the options were checked");
        Self {
            live_thousandths: (live_share * 1000.0).round() as u64,
            victim: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            waiting_bytes_peak: 0,
            peak_looked_at_bytes: 0,
            retired_count: 0,
            looked_back_count: 0,
            unnamed_bytes: 0,
            past: PastHorizon::default(),
            past_moments: PastMoments::default(),
            held_looked_at_bytes: 0,
            changes_left: CHANGES_PER_STEP,
            appended_bytes: 0,
            buried_bytes: 0,
            owed_bytes: 0,
            recent_live_bytes: 0,
            moved_bytes: 0,
            is_log_incomplete: false,
            is_resting: false,
            sample_state: seed,
        }
    }

    /// Makes the very next change pay: for a handle that may be closed after it.
    pub(crate) fn pay_at_once(&mut self) {
        self.changes_left = 1;
    }

    /// Takes over the counts of `before`, the state of this handle in its previous turn.
    pub(crate) fn go_on(&mut self, before: &Self) {
        self.changes_left = before.changes_left.max(1);
        self.appended_bytes = before.appended_bytes;
        self.buried_bytes = before.buried_bytes;
        self.owed_bytes = before.owed_bytes;
        self.recent_live_bytes = before.recent_live_bytes;
        self.moved_bytes = before.moved_bytes;
        self.waiting_bytes_peak = before.waiting_bytes_peak;
        // Do not attribute what has waited since then to readers: other handles may have opened
        // horizons in the meantime.
        self.note_looked_back();
    }

    /// Counts a change; returns whether it is time for a step.
    #[inline]
    pub(crate) fn is_step_due(&mut self) -> bool {
        self.changes_left -= 1;
        self.changes_left == 0
    }

    /// Counts the changes of a batch; returns whether it is time for a step.
    pub(crate) fn is_step_due_after(&mut self, change_count: usize) -> bool {
        let change_count = u32::try_from(change_count).unwrap_or(u32::MAX);
        self.changes_left = self.changes_left.saturating_sub(change_count);
        self.changes_left == 0
    }

    /// Returns the bytes of victims that changes have paid for and that are not read yet.
    pub(crate) fn owed_bytes(&self) -> u64 {
        self.owed_bytes
    }

    /// Counts the bytes of a record that was appended for a change.
    #[inline]
    pub(crate) fn note_appended(&mut self, bytes: u64) {
        self.appended_bytes += bytes;
        self.recent_live_bytes = self.recent_live_bytes.saturating_sub(bytes / RECENT_LIVE_FADING);
    }

    /// Makes the next changes pay for the dead bytes that deletes have left, because there is no
    /// other space.
    pub(crate) fn forget_recent_live(&mut self) {
        self.recent_live_bytes = 0;
    }

    /// Counts the bytes of a record that was appended and that no slot will hold.
    #[inline]
    pub(crate) fn note_appended_dead(&mut self, bytes: u64) {
        self.appended_bytes += bytes;
        self.is_resting = false;
    }

    /// Counts the bytes of a record that a change replaced or deleted.
    #[inline]
    pub(crate) fn note_buried(&mut self, bytes: u64) {
        self.buried_bytes += bytes;
    }

    /// Counts bytes that were moved.
    pub(crate) fn note_moved(&mut self, bytes: u64) {
        self.moved_bytes += bytes;
    }

    /// Returns the bytes that were moved since the store was opened.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// Returns the bytes of waiting segments.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Returns whether the log is complete: nothing was moved or emptied, so it has every record
    /// that a slot holds, and all earlier ones.
    pub(crate) fn is_log_whole(&self) -> bool {
        self.moved_bytes == 0 && !self.is_log_incomplete
    }

    /// Records that a key is deleted without a tombstone.
    pub(crate) fn note_log_incomplete(&mut self) {
        self.is_log_incomplete = true;
    }

    /// Begins a step, and returns the bytes of victims that it reads: as many as the changes since
    /// the last step pay for. The excess over the limit of a step is carried over to the next
    /// steps.
    ///
    /// `used_bytes` are the bytes of records in the segments in use, *without* waiting segments: if
    /// these counted, the writer would compact harder and harder for space that is about to become
    /// free. `live_bytes` are the live bytes among them. Unused ends of segments do not count,
    /// because moving records does not recover them.
    pub(crate) fn begin_step(
        &mut self,
        used_bytes: u64,
        live_bytes: u64,
        segment_bytes: u64,
    ) -> u64 {
        self.changes_left = CHANGES_PER_STEP;
        if self.buried_bytes > 0 {
            self.is_resting = false;
        }
        let appended_bytes = std::mem::take(&mut self.appended_bytes);
        let change_bytes = appended_bytes.max(std::mem::take(&mut self.buried_bytes));
        let waiting = if mutant::is_made(Mutant::PaysForWaiting) { self.waiting_bytes } else { 0 };
        let recent_max = live_bytes.saturating_add(live_bytes / RECENT_LIVE_SHARE);
        self.recent_live_bytes = self.recent_live_bytes.clamp(live_bytes, recent_max);
        let wanted_bytes = self.recent_live_bytes.saturating_mul(1000) / self.live_thousandths;
        let excess =
            (used_bytes + waiting).saturating_sub(wanted_bytes.saturating_add(2 * segment_bytes));
        if excess == 0 || self.is_resting {
            self.owed_bytes = 0;
            return 0;
        }
        let hurry = (1 + 2 * excess / segment_bytes).min(HURRY_MAX);
        let paid_bytes = change_bytes.saturating_mul(PACE * hurry);
        // Bounded by the bytes in use: a store that was cleared owes nothing for space that is
        // gone.
        let owed_bytes = self.owed_bytes.saturating_add(paid_bytes).min(used_bytes);
        let budget = owed_bytes.min(STEP_BYTES_MAX.max(segment_bytes));
        self.owed_bytes = owed_bytes - budget;
        if self.owed_bytes > 0 {
            self.changes_left = 1;
        }
        budget
    }

    /// Returns the segment whose emptying is worth most, if any is worth it. `heads` are the
    /// segments to which records are appended; `next_sequence` is the number of the next segment.
    pub(crate) fn choose(
        &mut self,
        segments: &SegmentTable,
        heads: [u64; 2],
        next_sequence: u64,
    ) -> Option<TableSegment> {
        let worth_of = |segment: TableSegment| {
            let is_closed = matches!(segment.segment_use, SegmentUse::Log | SegmentUse::Compacted)
                && !heads.contains(&segment.offset);
            let worth = is_closed.then(|| worth(&segment, next_sequence)).flatten();
            worth.map(|worth| (worth, segment))
        };
        let unit_count = segments.unit_count();
        let mut best = None;
        if unit_count > UNITS_LOOKED_AT {
            let units = (0..UNITS_SAMPLED).map(|_| self.next_sample() % unit_count);
            let sampled = units.filter_map(|unit| segments.segment_of_unit(unit));
            best = sampled.filter_map(worth_of).max_by_key(|&(worth, _)| worth);
        }
        let best = best
            .or_else(|| segments.segments().filter_map(worth_of).max_by_key(|&(worth, _)| worth));
        best.map(|(_, segment)| segment)
    }

    /// Returns the next number of a splitmix64 sequence.
    fn next_sample(&mut self) -> u64 {
        self.sample_state = self.sample_state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed =
            (self.sample_state ^ self.sample_state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Records that there is no victim, so that none is searched for until more bytes die.
    pub(crate) fn rest(&mut self) {
        self.is_resting = true;
    }

    /// Appends a segment that no slot leads to to the waiting list. `sequence` is its number, for
    /// [`redate`](Self::redate).
    pub(crate) fn retire(
        &mut self,
        segment: Range<u64>,
        is_big: bool,
        death: Death,
        sequence: u64,
    ) {
        let is_in_order = self.waiting.back().is_none_or(|last| {
            let Death { lsn, checkpoint, ticket, stamp } = last.death;
            lsn <= death.lsn
                && checkpoint <= death.checkpoint
                && ticket <= death.ticket
                && stamp <= death.stamp
        });
        assert!(is_in_order, "what was emptied first is used again first");
        let bytes = segment.end - segment.start;
        self.waiting_bytes += bytes;
        self.unnamed_bytes += bytes;
        self.waiting_bytes_peak = self.waiting_bytes_peak.saturating_sub(bytes / PEAK_FADING);
        self.retired_count += 1;
        let round = self.past_moments.begun();
        self.waiting.push_back(Emptied { segment, is_big, death, sequence, round });
        self.is_log_incomplete = true;
    }

    /// Corrects the deaths of the waiting segments by `before`, the state of this handle in an
    /// earlier turn: a segment that waited there and is still the same died at the earlier of the
    /// two times.
    pub(crate) fn redate(&mut self, before: &Self) {
        let known = before.waiting.iter().filter(|one| one.sequence != 0);
        let mut deaths: Vec<_> = known
            .map(|one| (one.segment.start, one.segment.end, one.sequence, one.death))
            .collect();
        deaths.sort_unstable_by_key(|one| (one.0, one.1, one.2));
        let mut waiting = Vec::from(std::mem::take(&mut self.waiting));
        for Emptied { segment, death, sequence, .. } in &mut waiting {
            let key = (segment.start, segment.end, *sequence);
            let earlier = deaths.binary_search_by_key(&key, |one| (one.0, one.1, one.2));
            if let Ok(found) = earlier {
                let Death { lsn, checkpoint, .. } = deaths[found].3;
                death.lsn = death.lsn.min(lsn);
                death.checkpoint = death.checkpoint.min(checkpoint);
            }
        }
        waiting.sort_by_key(|emptied| (emptied.death.lsn, emptied.death.checkpoint));
        self.waiting = waiting.into();
    }

    /// Records that a checkpoint is begun, which frees everything emptied so far.
    pub(crate) fn note_checkpoint(&mut self) {
        self.unnamed_bytes = 0;
    }

    /// Returns whether so much was emptied since the last checkpoint was begun that the next one is
    /// due, because the file grows by what waits. `image_bytes` is the size of a checkpoint, and
    /// `bytes_min` the smallest number of bytes for which one is written. This is independent of
    /// the pace of compaction.
    pub(crate) fn wants_checkpoint(
        &self,
        live_bytes: u64,
        image_bytes: u64,
        bytes_min: u64,
    ) -> bool {
        let share = (live_bytes / WAITING_SHARE).max(image_bytes * WAITING_BY_IMAGE);
        self.unnamed_bytes > share.max(bytes_min) && !mutant::is_made(Mutant::LetsWaitingGrow)
    }

    /// Returns whether any segment waits.
    #[inline]
    pub(crate) fn is_any_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Records that no open horizon needs what died at `stamp` or before; `ticket` begins a grace
    /// period.
    pub(crate) fn note_past(&mut self, stamp: u64, ticket: impl FnOnce() -> u64) {
        debug_assert!(stamp >= self.past.stamp, "a horizon opens at the newest moment");
        if self.past.next.is_none() && stamp > self.past.stamp {
            self.past.next = Some((stamp, ticket()));
        }
    }

    /// Returns the largest stamp such that nobody needs what died then, given that every grace
    /// period below the ticket `unpinned` is over.
    pub(crate) fn past_horizon(&mut self, unpinned: u64) -> u64 {
        let is_over =
            |next: &mut (u64, u64)| next.1 < unpinned || mutant::is_made(Mutant::ReusesPinned);
        if let Some((stamp, _)) = self.past.next.take_if(is_over) {
            self.past.stamp = stamp;
        }
        self.past.stamp
    }

    /// Advances the search for what no moment of another process needs, if a segment waits for it
    /// and a new round could help, which it cannot if the segment waits only for the oldest moment,
    /// `held_since`. The other arguments are those of [`PastMoments::step`]. Returns whether a step
    /// was taken.
    pub(crate) fn step_past_moments(
        &mut self,
        unpinned: u64,
        committed: u64,
        held_since: Option<u64>,
        oldest: impl FnOnce() -> Option<u64>,
        ticket: impl FnOnce() -> u64,
    ) -> bool {
        let below = self.past_moments.below();
        let is_awaited = self.waiting.front().is_some_and(|first| match held_since {
            // Another round would find the same oldest moment.
            Some(since) if first.death.lsn >= below && since <= below => false,
            _ => first.death.lsn >= below || !self.past_moments.is_over(first.round),
        });
        (is_awaited || !self.past_moments.is_at_rest())
            && self.past_moments.step(unpinned, committed, oldest, ticket)
    }

    /// Returns the log sequence number below which no moment of another process needs what was emptied.
    pub(crate) fn past_moments(&self) -> u64 {
        self.past_moments.below()
    }

    /// Returns whether so much waits that it is worth computing [`held_bytes`](Self::held_bytes):
    /// more than `least_bytes`, and sufficiently more than at the last check.
    pub(crate) fn is_much_waiting(&mut self, least_bytes: u64) -> bool {
        let next_look_bytes = self.waiting_bytes + least_bytes / HELD_LOOKS;
        if self.waiting_bytes <= least_bytes || self.waiting_bytes < self.held_looked_at_bytes {
            self.held_looked_at_bytes = self.held_looked_at_bytes.min(next_look_bytes);
            return false;
        }
        self.held_looked_at_bytes = next_look_bytes;
        true
    }

    /// Returns the bytes of segments that wait only because a horizon or moment may need what died
    /// after the stamp `past`.
    pub(crate) fn held_bytes(&self, moment: &Moment, past: u64) -> u64 {
        self.held_bytes_while(moment, |death| death.stamp > past)
    }

    fn held_bytes_while(&self, moment: &Moment, is_held: impl Fn(&Death) -> bool) -> u64 {
        let held = self.waiting.iter().rev().take_while(|emptied| is_held(&emptied.death));
        held.filter(|emptied| emptied.is_only_held(moment)).map(Emptied::bytes).sum()
    }

    /// Returns the oldest log sequence number that a moment of another process may have and still
    /// hold back at most `bytes_max`; 0 if all waiting bytes are no more than that.
    pub(crate) fn least_since(&self, moment: &Moment, bytes_max: u64) -> u64 {
        let mut held_bytes = 0;
        let mut held = self.waiting.iter().rev().filter(|emptied| emptied.is_only_held(moment));
        let excess = held.find(|emptied| {
            held_bytes += emptied.bytes();
            held_bytes > bytes_max
        });
        excess.map_or(0, |emptied| emptied.death.lsn + 1)
    }

    /// Returns the offsets of the waiting segments that were emptied at the stamp `past` or before.
    pub(crate) fn emptied_until(&self, past: u64) -> HashSet<u64> {
        let until = self.waiting.iter().take_while(|emptied| emptied.death.stamp <= past);
        until.map(|emptied| emptied.segment.start).collect()
    }

    /// Removes from the list a segment whose space may be reused at `moment`. Also returns whether
    /// it is that of a big record.
    pub(crate) fn take_reusable(&mut self, moment: &Moment) -> Option<(Range<u64>, bool)> {
        let past_moments = self.past_moments;
        // A moment may have begun since the round that would free the segment, and may still find
        // its records.
        let is_of_round = |first: &&Emptied| {
            let is_over = moment.past_moments == u64::MAX || past_moments.is_over(first.round);
            is_over || mutant::is_made(Mutant::ForgetsMoments)
        };
        let first = self.waiting.front().filter(|first| first.is_reusable(moment));
        let first = first.filter(is_of_round)?;
        let (segment, is_big) = (first.segment.clone(), first.is_big);
        self.waiting.pop_front();
        self.waiting_bytes -= segment.end - segment.start;
        self.peak_looked_at_bytes = 0;
        Some((segment, is_big))
    }

    /// Records that a horizon or moment is open, which may hold all waiting segments.
    pub(crate) fn note_looked_back(&mut self) {
        self.looked_back_count = self.retired_count;
    }

    /// Updates the peak of the bytes that wait only for grace periods, after a check at which no
    /// segment could be [taken](Self::take_reusable): as much will soon wait again.
    pub(crate) fn note_peak(&mut self, moment: &Moment, live_bytes: u64) {
        let peak_max = live_bytes.saturating_mul(PEAK_LIVE_MAX);
        self.waiting_bytes_peak = self.waiting_bytes_peak.min(peak_max);
        let least_bytes = self.waiting_bytes_peak.max(self.peak_looked_at_bytes);
        let taken_count = self.retired_count - self.waiting.len() as u64;
        if self.waiting_bytes <= least_bytes || taken_count < self.looked_back_count {
            return;
        }
        self.peak_looked_at_bytes = self.waiting_bytes + self.waiting_bytes / PEAK_LOOKS;
        let but_for_readers = Moment { unpinned: u64::MAX, past_moments: u64::MAX, ..*moment };
        let held = self.waiting.iter().take_while(|one| one.is_reusable(&but_for_readers));
        let held_bytes = held.map(Emptied::bytes).sum::<u64>().min(peak_max);
        self.waiting_bytes_peak = self.waiting_bytes_peak.max(held_bytes);
    }

    /// Returns the number of bytes of free space that may keep their pages. Waiting and free space
    /// have a common bound, because waiting space becomes free next, and the next segments need it.
    /// When readers are preempted within a lookup, much space waits for a while; without the peak,
    /// its pages would be released and faulted in again each time.
    pub(crate) fn warm_bytes_max(&self, live_bytes: u64, segment_bytes: u64) -> u64 {
        let spare_bytes = live_bytes / SPARE_SHARE + self.waiting_bytes_peak;
        spare_bytes.saturating_sub(self.waiting_bytes).max(segment_bytes)
    }
}

/// Returns the benefit of emptying a segment divided by its cost: the space gained times the age of
/// the segment, per byte read and moved. Age counts because records that have lived long are likely
/// to live on, so waiting for them to die gains nothing.
fn worth(segment: &TableSegment, next_sequence: u64) -> Option<u64> {
    let dead = (segment.dead_bytes.saturating_mul(1000) / segment.bytes).min(1000);
    if dead < DEAD_THOUSANDTHS_MIN {
        return None;
    }
    let age = u64::from((next_sequence as u32).wrapping_sub(segment.sequence)).max(1);
    Some(((dead * age) << 16) / (2000 - dead))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 65_536;

    fn segment(live_bytes: u64, sequence: u32) -> TableSegment {
        let (segment_use, dead_bytes) = (SegmentUse::Log, UNIT - live_bytes);
        TableSegment { offset: UNIT, bytes: UNIT, segment_use, live_bytes, dead_bytes, sequence }
    }

    #[test]
    fn space_and_age_make_a_segment_worth_emptying() {
        let (half, most) = (worth(&segment(UNIT / 2, 10), 20), worth(&segment(UNIT / 5, 10), 20));
        assert!(most > half && half.is_some());
        assert!(worth(&segment(UNIT / 2, 1), 20) > half, "an older one");
        assert_eq!(worth(&segment(UNIT - 64, 1), 20), None, "nearly all of it is live");
        let wrapped = worth(&segment(UNIT / 2, u32::MAX - 4), (1 << 32) + 5);
        assert_eq!(wrapped, half, "the age is right where the low half of the number wraps");
    }

    #[test]
    fn the_best_closed_segment_is_the_victim() {
        let mut table = SegmentTable::new(UNIT);
        for (number, live_bytes) in [(1, 60_000), (2, 8_000), (3, 800), (4, 0), (5, 0)] {
            let offset = number * UNIT;
            table.begin(offset..offset + UNIT, SegmentUse::Log, number);
            table.add_live(offset, live_bytes);
            table.add_dead(offset, 65_000 - live_bytes);
        }
        table.set_use(3 * UNIT, SegmentUse::Damaged);
        let mut compaction = Compaction::new(0.78, 1);
        let chosen = compaction.choose(&table, [4 * UNIT, 5 * UNIT], 6).unwrap();
        assert_eq!(chosen.offset, 2 * UNIT, "neither damaged nor a head");
        table.set_use(2 * UNIT, SegmentUse::Emptied);
        let chosen = compaction.choose(&table, [4 * UNIT, 5 * UNIT], 6);
        assert_eq!(chosen.map(|chosen| chosen.offset), Some(UNIT));
    }

    /// Returns the table of a log of `units` units, in segments of 16 units, each with
    /// `dead_bytes`.
    fn large_table(dead_bytes: u64) -> SegmentTable {
        let mut table = SegmentTable::new(4096);
        for offset in (0..UNITS_LOOKED_AT + 16).step_by(16).map(|unit| unit * 4096) {
            table.begin(offset..offset + 16 * 4096, SegmentUse::Log, offset);
            table.add_dead(offset, dead_bytes);
        }
        table
    }

    #[test]
    fn a_large_table_is_sampled_and_every_segment_can_be_the_victim() {
        let table = large_table(UNIT / 2);
        let mut compaction = Compaction::new(0.78, 1);
        let mut chosen = std::collections::HashSet::new();
        for _ in 0..100 {
            chosen.insert(compaction.choose(&table, [0, 0], 10_000).unwrap().offset);
        }
        assert!(chosen.len() > 30, "{}", chosen.len());
    }

    #[test]
    fn the_only_victim_of_a_large_table_is_found() {
        let mut table = large_table(0);
        assert_eq!(Compaction::new(0.78, 1).choose(&table, [0, 0], 10_000), None);
        table.add_dead(777 * UNIT, UNIT / 2);
        let chosen = Compaction::new(0.78, 1).choose(&table, [0, 0], 10_000);
        assert_eq!(chosen.map(|chosen| chosen.offset), Some(777 * UNIT));
    }

    #[test]
    fn a_step_reads_no_more_than_its_share_and_leaves_the_rest_to_the_next() {
        let mut compaction = Compaction::new(0.8, 1);
        compaction.note_appended(100 * STEP_BYTES_MAX);
        compaction.note_buried(8);
        let mut step = || {
            let budget = compaction.begin_step(1 << 40, 0, UNIT / 2);
            (budget, compaction.is_step_due())
        };
        for _ in 1..1800 {
            assert_eq!(step(), (STEP_BYTES_MAX, true), "due with the next change");
        }
        assert_eq!(step(), (STEP_BYTES_MAX, false));
        assert_eq!(step().0, 0, "all is read");
    }

    #[test]
    fn nothing_is_owed_once_enough_is_live() {
        let mut compaction = Compaction::new(0.8, 1);
        compaction.note_appended(100 * STEP_BYTES_MAX);
        assert_eq!(compaction.begin_step(1 << 40, 0, UNIT), STEP_BYTES_MAX);
        assert_eq!(compaction.begin_step(UNIT, 0, UNIT), 0);
        assert_eq!(compaction.begin_step(1 << 40, 0, UNIT), 0);
    }

    #[test]
    fn records_that_no_slot_holds_end_the_rest() {
        let mut compaction = Compaction::new(0.8, 1);
        compaction.rest();
        compaction.note_appended(1000);
        assert_eq!(compaction.begin_step(1 << 40, 0, UNIT), 0);
        compaction.note_appended_dead(1000);
        assert_eq!(compaction.begin_step(1 << 40, 0, UNIT), 18_000);
    }

    #[test]
    fn nothing_is_paid_up_to_the_wanted_share_and_more_the_more_is_used() {
        let pay = |used_bytes: u64| {
            let mut compaction = Compaction::new(0.8, 1);
            compaction.note_appended(1000);
            compaction.note_buried(900);
            compaction.begin_step(used_bytes, 80 * UNIT, UNIT)
        };
        assert_eq!(pay(102 * UNIT), 0);
        assert_eq!(pay(102 * UNIT + 8), 3000);
        assert_eq!(pay(103 * UNIT), 9000);
        assert_eq!(pay(200 * UNIT), 18_000);
    }

    #[test]
    fn deletes_pay_for_what_they_bury() {
        let mut compaction = Compaction::new(0.8, 1);
        compaction.note_appended(24);
        compaction.note_buried(2000);
        assert_eq!(compaction.begin_step(1 << 30, 0, UNIT), 36_000);
        compaction.note_appended(24);
        assert_eq!(compaction.begin_step(1 << 30, 0, UNIT), 24 * 18, "what was buried is paid");
    }

    #[test]
    fn deletes_pay_when_a_sixth_of_what_is_live_has_gone() {
        let mut compaction = Compaction::new(0.8, 1);
        assert_eq!(compaction.begin_step(102 * UNIT, 80 * UNIT, UNIT), 0);
        let mut delete = |used_bytes, live_bytes| {
            compaction.note_appended_dead(24);
            compaction.note_buried(2000);
            compaction.begin_step(used_bytes, live_bytes, UNIT)
        };
        assert_eq!(delete(102 * UNIT, 70 * UNIT), 0, "80 / 0.8 and two segments");
        assert_eq!(delete(102 * UNIT + 8, 70 * UNIT), 6000);
        assert_eq!(delete(89 * UNIT + UNIT / 2, 60 * UNIT), 0, "60 * 7 / 6 / 0.8 and two");
        assert_eq!(delete(89 * UNIT + UNIT / 2 + 8, 60 * UNIT), 6000);
        assert_eq!(delete(200 * UNIT, 60 * UNIT), 36_000);
    }

    #[test]
    fn what_deletes_left_is_paid_for_while_twice_as_much_is_appended() {
        let mut compaction = Compaction::new(0.8, 1);
        assert_eq!(compaction.begin_step(102 * UNIT, 80 * UNIT, UNIT), 0);
        let mut overwrite = |used_units: u64, bytes| {
            compaction.note_appended(bytes);
            compaction.note_buried(bytes);
            compaction.begin_step(used_units * UNIT, 72 * UNIT, UNIT)
        };
        assert_eq!(overwrite(97, 8 * UNIT), 0, "76 / 0.8 and two segments");
        assert_eq!(overwrite(92, 8 * UNIT), 0, "72 / 0.8 and two segments");
        assert_ne!(overwrite(93, UNIT), 0);
    }

    #[test]
    fn what_was_live_of_late_is_known_in_the_next_turn_but_not_to_another_handle() {
        let mut compaction = Compaction::new(0.8, 1);
        assert_eq!(compaction.begin_step(102 * UNIT, 80 * UNIT, UNIT), 0);
        let overwrite = |mut compaction: Compaction| {
            compaction.note_appended(800);
            compaction.begin_step(97 * UNIT, 72 * UNIT, UNIT)
        };
        let mut next_turn = Compaction::new(0.8, 1);
        next_turn.go_on(&compaction);
        assert_eq!(overwrite(next_turn), 0);
        assert_eq!(overwrite(Compaction::new(0.8, 1)), 800 * 18);
        compaction.forget_recent_live();
        assert_eq!(overwrite(compaction), 800 * 18);
    }

    /// Returns whether a segment that was emptied at 100, under ticket 7 and at stamp 3, may be used
    /// again.
    fn is_reusable(moment: Moment) -> bool {
        let mut compaction = Compaction::new(0.8, 1);
        compaction.retire(
            0..UNIT,
            false,
            Death { lsn: 100, checkpoint: 2, ticket: 7, stamp: 3 },
            0,
        );
        look_at_moments(&mut compaction, 100);
        compaction.take_reusable(&moment).is_some()
    }

    /// Finds out, in one round, that no moment of another process is open at the commit `committed`.
    fn look_at_moments(compaction: &mut Compaction, committed: u64) {
        for unpinned in 0..3 {
            compaction.step_past_moments(unpinned, committed, None, || None, || unpinned);
        }
    }

    #[test]
    fn every_condition_alone_holds_a_segment_back() {
        let free = Moment {
            durable_lsn: 100,
            replay_checkpoint: 3,
            unpinned: 8,
            past_horizon: 3,
            past_moments: 101,
        };
        assert!(is_reusable(free));
        assert!(!is_reusable(Moment { durable_lsn: 99, ..free }));
        assert!(!is_reusable(Moment { replay_checkpoint: 2, ..free }));
        assert!(!is_reusable(Moment { unpinned: 7, ..free }));
        assert!(!is_reusable(Moment { past_horizon: 2, ..free }));
        assert!(!is_reusable(Moment { past_moments: 100, ..free }));
    }

    #[test]
    fn what_waits_for_the_oldest_moment_alone_is_looked_at_when_that_has_gone() {
        let mut compaction = Compaction::new(0.78, 1);
        let death = Death { lsn: 100, checkpoint: 0, ticket: 0, stamp: 0 };
        compaction.retire(0..UNIT, false, death, 0);
        let mut look = |unpinned, since: Option<u64>| {
            let steps = (0..3_u64).filter(|i| {
                let ticket = unpinned + i;
                compaction.step_past_moments(ticket, 200, since, || since, || ticket)
            });
            (steps.count(), compaction.past_moments())
        };
        assert_eq!(look(0, Some(40)), (3, 40), "nobody knew of the moment");
        assert_eq!(look(10, Some(40)), (0, 40), "it is still there");
        assert_eq!(look(20, Some(60)), (3, 60), "another one is the oldest");
        assert_eq!(look(30, None), (3, 201));
    }

    #[test]
    fn what_is_emptied_during_a_look_at_moments_waits_for_the_next() {
        let mut compaction = Compaction::new(0.8, 1);
        let death = Death { lsn: 100, checkpoint: 2, ticket: 7, stamp: 3 };
        compaction.retire(0..UNIT, false, death, 0);
        look_at_moments(&mut compaction, 100);
        // Nothing was committed since, and a moment of that commit may have begun.
        compaction.retire(UNIT..2 * UNIT, false, death, 0);
        let moment = Moment {
            durable_lsn: 100,
            replay_checkpoint: 3,
            unpinned: 8,
            past_horizon: 3,
            past_moments: compaction.past_moments(),
        };
        assert_eq!(compaction.take_reusable(&moment), Some((0..UNIT, false)));
        assert_eq!(compaction.take_reusable(&moment), None);
        look_at_moments(&mut compaction, 100);
        assert_eq!(compaction.take_reusable(&moment), Some((UNIT..2 * UNIT, false)));
    }

    #[test]
    fn what_waits_since_an_earlier_turn_keeps_the_date_of_its_death() {
        let death = |lsn| Death { lsn, checkpoint: lsn / 10, ticket: 0, stamp: 0 };
        let mut before = Compaction::new(0.8, 1);
        let mut after = Compaction::new(0.8, 1);
        before.retire(0..UNIT, false, death(10), 4);
        before.retire(UNIT..2 * UNIT, false, death(20), 5);
        before.retire(2 * UNIT..3 * UNIT, true, death(30), 6);
        // The first was reused and emptied again; the last one was unknown.
        for (at, sequence) in [(3, 7), (0, 8), (1, 5), (2, 6)] {
            after.retire(at * UNIT..(at + 1) * UNIT, at == 2, death(90), sequence);
        }
        after.redate(&before);
        let dated = after.waiting.iter().map(|one| {
            let Death { lsn, checkpoint, .. } = one.death;
            (one.segment.start / UNIT, lsn, checkpoint)
        });
        assert_eq!(dated.collect::<Vec<_>>(), [(1, 20, 2), (2, 30, 3), (3, 90, 9), (0, 90, 9)]);
    }

    #[test]
    fn what_a_horizon_held_waits_for_the_grace_period_after_it() {
        let mut compaction = Compaction::new(0.8, 1);
        assert_eq!(compaction.past_horizon(0), 0);
        compaction.note_past(4, || 7);
        assert_eq!(compaction.past_horizon(7), 0);
        compaction.note_past(5, || unreachable!("one grace period at a time"));
        assert_eq!(compaction.past_horizon(8), 4);
        compaction.note_past(5, || 9);
        assert_eq!((compaction.past_horizon(9), compaction.past_horizon(10)), (4, 5));
    }

    #[test]
    fn only_what_waits_for_nothing_else_is_held_by_horizons() {
        let mut compaction = Compaction::new(0.8, 1);
        for (i, (lsn, stamp)) in [(10, 1), (20, 2), (30, 3), (40, 3)].into_iter().enumerate() {
            let offset = i as u64 * UNIT;
            let death = Death { lsn, checkpoint: 0, ticket: 0, stamp };
            compaction.retire(offset..offset + UNIT, false, death, 0);
        }
        let moment = Moment {
            durable_lsn: 30,
            replay_checkpoint: 1,
            unpinned: 1,
            past_horizon: 0,
            past_moments: 0,
        };
        let held = [0, 1, 2, 3].map(|past| compaction.held_bytes(&moment, past) / UNIT);
        assert_eq!(held, [3, 2, 1, 0], "the last one is not durable yet");
        let since = [3, 2, 1, 0].map(|units| compaction.least_since(&moment, units * UNIT));
        assert_eq!(since, [0, 11, 21, 31], "no later than it has to be");
        assert_eq!(compaction.emptied_until(2), HashSet::from([0, UNIT]));
        assert!(!compaction.is_much_waiting(4 * UNIT));
        assert!(compaction.is_much_waiting(3 * UNIT) && !compaction.is_much_waiting(3 * UNIT));
    }

    #[test]
    fn a_checkpoint_is_wanted_for_what_was_emptied_since_the_last_one_began() {
        let mut compaction = Compaction::new(0.8, 1);
        let retire = |compaction: &mut Compaction, number: u64| {
            let segment = number * UNIT..(number + 1) * UNIT;
            let death = Death { lsn: number * 8, checkpoint: 0, ticket: 0, stamp: 0 };
            compaction.retire(segment, false, death, 0);
        };
        for number in 0..4 {
            retire(&mut compaction, number);
        }
        let wants = |compaction: &Compaction, live_bytes, image_bytes, bytes_min| {
            compaction.wants_checkpoint(live_bytes, image_bytes, bytes_min)
        };
        assert!(wants(&compaction, 31 * UNIT, 2 * UNIT - 8, 4 * UNIT - 8));
        assert!(!wants(&compaction, 32 * UNIT, 0, 0), "an eighth of the live bytes");
        assert!(!wants(&compaction, 0, 2 * UNIT, 0), "half of that is written for it");
        assert!(!wants(&compaction, 0, 0, 4 * UNIT), "too little for any checkpoint");
        compaction.note_checkpoint();
        assert!(!wants(&compaction, 0, 0, 0), "all of it waits for the one that was begun");
        retire(&mut compaction, 4);
        assert!(wants(&compaction, 0, 0, 0));
        assert_eq!(compaction.waiting_bytes(), 5 * UNIT);
    }

    #[test]
    fn what_waits_and_what_is_free_have_one_bound() {
        let mut compaction = Compaction::new(0.8, 1);
        let warm = |compaction: &Compaction| compaction.warm_bytes_max(64 * UNIT, UNIT) / UNIT;
        let retire = |compaction: &mut Compaction, units: u64| {
            let death = Death { lsn: 0, checkpoint: 0, ticket: 0, stamp: 0 };
            compaction.retire(0..units * UNIT, false, death, 0);
        };
        assert_eq!(warm(&compaction), 16);
        retire(&mut compaction, 10);
        assert_eq!(warm(&compaction), 6);
        retire(&mut compaction, 14);
        assert_eq!(warm(&compaction), 1, "the next segment");
        let held = Moment::in_memory(0, 0);
        let unlogged = Moment { durable_lsn: 0, replay_checkpoint: 0, ..held };
        compaction.note_peak(&unlogged, 64 * UNIT);
        assert_eq!(compaction.waiting_bytes_peak, 0, "it waits for a checkpoint as well");
        compaction.note_looked_back();
        compaction.note_peak(&held, 64 * UNIT);
        assert_eq!(compaction.waiting_bytes_peak, 0, "somebody may have held it back");
        while compaction.take_reusable(&Moment::in_memory(1, 0)).is_some() {}
        retire(&mut compaction, 24);
        compaction.note_peak(&held, 64 * UNIT);
        while compaction.take_reusable(&Moment::in_memory(1, 0)).is_some() {}
        assert_eq!(warm(&compaction), 16 + 24, "as much will wait again");
        retire(&mut compaction, 4);
        assert_eq!(warm(&compaction), 16 + 22 - 4, "it fades");
        retire(&mut compaction, 44);
        while compaction.take_reusable(&Moment::in_memory(1, 0)).is_some() {}
        assert_eq!(warm(&compaction), 16, "and is forgotten");
        retire(&mut compaction, 1000);
        compaction.note_peak(&held, 64 * UNIT);
        while compaction.take_reusable(&Moment::in_memory(1, 0)).is_some() {}
        assert_eq!(warm(&compaction), 16 + 8 * 64, "no more than eight times what is live");
        retire(&mut compaction, 4);
        assert_eq!(warm(&compaction), 16 + 8 * 64 - 2 - 4, "which fades as well");

        let mut later = Compaction::new(0.8, 1);
        retire(&mut later, 1000);
        later.go_on(&compaction);
        let peak = compaction.waiting_bytes_peak;
        assert_eq!(later.waiting_bytes_peak, peak, "as in the turn before");
        later.waiting_bytes_peak = 0;
        later.note_peak(&held, 64 * UNIT);
        assert_eq!(later.waiting_bytes_peak, 0, "others may have looked back meanwhile");
    }

    #[test]
    fn what_waits_is_counted_until_it_is_taken() {
        let mut compaction = Compaction::new(0.8, 1);
        compaction.retire(0..UNIT, false, Death { lsn: 8, checkpoint: 0, ticket: 1, stamp: 0 }, 0);
        compaction.retire(
            UNIT..UNIT + 4096,
            true,
            Death { lsn: 8, checkpoint: 0, ticket: 2, stamp: 0 },
            0,
        );
        assert_eq!(compaction.waiting_bytes(), UNIT + 4096);
        let moment = Moment::in_memory(2, 0);
        assert_eq!(compaction.take_reusable(&moment), Some((0..UNIT, false)));
        assert_eq!(compaction.take_reusable(&moment), None);
        let moment = Moment::in_memory(3, 0);
        assert_eq!(compaction.take_reusable(&moment), Some((UNIT..UNIT + 4096, true)));
        assert_eq!((compaction.waiting_bytes(), compaction.is_any_waiting()), (0, false));
    }
}
