//! Paces the writer, so that its changes become durable within a bound.
//!
//! ```text
//! change ... change | sync begins ------------------ ends |
//!   ^ unsafe since    what came before is covered     change, change ... not covered yet
//! ```
//!
//! A background sync begins three quarters of the bound after the first change that it will cover.
//! On a device that cannot keep up, that alone does not bound the delay: one sync takes longer than
//! the bound, the next must cover all changes made in the meantime and takes longer still, and so
//! on. So the writer is throttled in two ways.
//!
//! - It waits for the sync in progress if a change that this sync does not cover is older than the
//!   bound.
//! - A sync is begun early if it would cover more bytes than the device writes in a quarter of the
//!   bound, as measured by the last sync; the writer waits if there are twice as many.
//!
//! # Not here
//!
//! The sync itself: `syncer` does it or, without a background thread, the writer does.

use std::time::{Duration, Instant};

/// Bytes that a sync may cover before the device was measured: a quarter of a second at 64 MiB/s.
const FIRST_QUOTA_BYTES: u64 = 16 << 20;
/// Bounds of the quota. Lower: any device writes this much at once. Upper: a sync may have been
/// fast only because the kernel had written its pages back before.
const QUOTA_BYTES_MIN: u64 = 1 << 20;
const QUOTA_BYTES_MAX: u64 = 1 << 30;
/// Smaller syncs measure the latency of a flush, not the throughput of the device.
const MEASURED_BYTES_MIN: u64 = 256 << 10;
/// How long after the first change a sync begins where there is no bound.
const UNBOUNDED_DELAY: Duration = Duration::from_millis(750);

/// The changes that no sync, begun or ended, covers yet, and the measured speed of the device.
#[derive(Debug)]
pub(crate) struct Pace {
    age_max: Option<Duration>,
    quota_bytes: u64,
    /// When the first uncovered change was made.
    since: Option<Instant>,
    /// Where the uncovered changes begin: the end of the last sync that has begun.
    covered: Written,
    /// Bytes covered by the last sync that has begun.
    syncing_bytes: u64,
    /// The count of written bytes at which the uncovered bytes exceed the quota.
    too_many_bytes: u64,
    asked: Asked,
}

/// How much has been written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// The log sequence number.
    pub(crate) lsn: u64,
    /// Bytes of all records, including big records, which are not in the stream of the log.
    pub(crate) bytes: u64,
}

/// Which thread was asked to sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nobody,
    Thread,
    /// The writer itself, since there is no background thread.
    Writer,
}

/// What a writer does after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    GoOn,
    /// It asks for a sync now.
    Hurry,
    /// It returns only when the log is durable up to this log sequence number: it waits for a sync,
    /// or does one.
    Wait(u64),
}

impl Pace {
    /// Begins with nothing to sync. Changes may be `age_max` old before they are safe; without it
    /// the writer never waits.
    pub(crate) fn new(age_max: Option<Duration>, written: Written) -> Self {
        let quota_bytes = if age_max.is_some() { FIRST_QUOTA_BYTES } else { u64::MAX };
        Self {
            age_max,
            quota_bytes,
            since: None,
            covered: written,
            syncing_bytes: 0,
            too_many_bytes: written.bytes.saturating_add(quota_bytes),
            asked: Asked::Nobody,
        }
    }

    /// Notes a change.
    #[inline]
    pub(crate) fn note_change(&mut self) {
        if self.since.is_none() {
            self.begin();
        }
    }

    #[cold]
    fn begin(&mut self) {
        self.since = Some(Instant::now());
    }

    /// Notes that a sync begins, which covers everything `written` so far; returns when the oldest
    /// change that it covers was made.
    pub(crate) fn begin_sync(&mut self, written: Written) -> Option<Instant> {
        assert!(self.covered.lsn <= written.lsn, "the log only grows");
        assert!(self.covered.bytes <= written.bytes, "no count of bytes goes back");
        self.syncing_bytes = written.bytes - self.covered.bytes;
        self.covered = written;
        self.too_many_bytes = written.bytes.saturating_add(self.quota_bytes);
        self.asked = Asked::Nobody;
        self.since.take()
    }

    /// Continues after other handles have written: changes that were not durable yet keep their
    /// age. Counts of bytes may have gone back meanwhile.
    pub(crate) fn go_on_from(&mut self, written: Written) {
        self.covered = written;
        self.syncing_bytes = 0;
        self.too_many_bytes = written.bytes.saturating_add(self.quota_bytes);
    }

    /// Measures the device: the last sync that began has ended now and `took` this long.
    pub(crate) fn end_sync(&mut self, took: Duration) {
        let (Some(age_max), bytes) = (self.age_max, self.syncing_bytes) else { return };
        if bytes < MEASURED_BYTES_MIN {
            return;
        }
        let took_ns = took.as_nanos().max(1);
        let bytes_in_quarter = u128::from(bytes) * (age_max.as_nanos() / 4) / took_ns;
        let measured = bytes_in_quarter.min(u128::from(QUOTA_BYTES_MAX)) as u64;
        // Lower the quota at once, but raise it only by half the difference.
        let quota = if measured < self.quota_bytes {
            measured
        } else {
            self.quota_bytes + (measured - self.quota_bytes) / 2
        };
        self.quota_bytes = quota.max(QUOTA_BYTES_MIN);
        assert!(self.quota_bytes <= QUOTA_BYTES_MAX, "a sync has a bound");
        self.too_many_bytes = self.covered.bytes.saturating_add(self.quota_bytes);
    }

    /// Returns when the oldest change that no sync covers was made.
    pub(crate) fn unsafe_since(&self) -> Option<Instant> {
        self.since
    }

    /// Returns how long after the first uncovered change a sync begins.
    pub(crate) fn delay(&self) -> Duration {
        self.age_max.map_or(UNBOUNDED_DELAY, |age_max| age_max / 4 * 3)
    }

    /// Returns whether no thread was asked to sync yet.
    #[inline]
    pub(crate) fn is_unasked(&self) -> bool {
        self.asked == Asked::Nobody
    }

    /// Notes that a sync was asked for: of the background thread if there is one, or of the writer.
    pub(crate) fn set_asked(&mut self, has_thread: bool) {
        self.asked = if has_thread { Asked::Thread } else { Asked::Writer };
    }

    /// Returns whether the writer may go on without calling [`step`](Self::step), as it nearly
    /// always may.
    #[inline]
    pub(crate) fn is_calm(&self, written: Written, is_busy: bool) -> bool {
        !is_busy && written.bytes < self.too_many_bytes && self.asked != Asked::Writer
    }

    /// Returns what the writer does after a change. `is_syncing` tells that a sync is in progress,
    /// `is_busy` that the syncing thread is busy with other work.
    #[cold]
    pub(crate) fn step(
        &mut self,
        written: Written,
        is_syncing: bool,
        is_busy: bool,
        now: Instant,
    ) -> Step {
        let lsn = written.lsn;
        let Some(since) = self.since else { return Step::GoOn };
        let age = now.saturating_duration_since(since);
        if self.asked == Asked::Writer && age >= self.delay() {
            return Step::Wait(lsn);
        }
        let Some(age_max) = self.age_max else { return Step::GoOn };
        assert!(self.covered.bytes <= written.bytes, "no count of bytes goes back");
        let bytes = written.bytes - self.covered.bytes;
        if is_syncing {
            let is_over = age >= age_max || bytes >= self.quota_bytes;
            return if is_over { Step::Wait(self.covered.lsn) } else { Step::GoOn };
        }
        if is_busy && age >= age_max || bytes / 2 >= self.quota_bytes {
            return Step::Wait(lsn);
        }
        if bytes >= self.quota_bytes {
            // Ask for a sync only once: the next call comes when the uncovered bytes are twice the
            // quota.
            self.too_many_bytes = self.covered.bytes.saturating_add(2 * self.quota_bytes);
            return if self.asked == Asked::Writer { Step::Wait(lsn) } else { Step::Hurry };
        }
        Step::GoOn
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIB: u64 = 1 << 20;

    fn at(bytes: u64) -> Written {
        Written { lsn: bytes, bytes }
    }

    /// A pace whose first change was just made, after a sync that covers `bytes`.
    fn begun(bytes: u64) -> (Pace, Instant) {
        let mut pace = Pace::new(Some(SECOND), at(0));
        pace.begin_sync(at(bytes));
        pace.note_change();
        pace.set_asked(true);
        let since = pace.unsafe_since().expect("a change was made");
        (pace, since)
    }

    /// As a sync of so many bytes, with nothing written since.
    fn measure(pace: &mut Pace, bytes: u64, took: Duration) {
        pace.syncing_bytes = bytes;
        pace.end_sync(took);
    }

    #[test]
    fn a_writer_goes_on_while_the_sync_under_way_is_within_the_bound() {
        let (mut pace, since) = begun(100);
        assert!(pace.is_calm(at(200), false) && !pace.is_calm(at(200), true));
        assert_eq!(pace.step(at(200), true, true, since + SECOND / 2), Step::GoOn);
        assert_eq!(pace.step(at(200), true, true, since + SECOND), Step::Wait(100));
    }

    #[test]
    fn a_writer_syncs_itself_when_the_thread_is_at_something_else() {
        let (mut pace, since) = begun(100);
        assert_eq!(pace.step(at(200), false, true, since + SECOND / 2), Step::GoOn);
        assert_eq!(pace.step(at(200), false, true, since + SECOND), Step::Wait(200));
    }

    #[test]
    fn a_writer_without_a_thread_syncs_itself_when_that_is_due() {
        for age_max in [Some(SECOND), None] {
            let mut pace = Pace::new(age_max, at(0));
            pace.note_change();
            pace.set_asked(false);
            let since = pace.unsafe_since().expect("a change was made");
            assert!(!pace.is_calm(at(8), false));
            assert_eq!(pace.step(at(8), false, false, since), Step::GoOn);
            assert_eq!(pace.step(at(8), false, false, since + SECOND * 3 / 4), Step::Wait(8));
        }
    }

    #[test]
    fn a_slow_device_gets_small_syncs() {
        let (mut pace, since) = begun(0);
        // 64 MiB in 3.2 s are 20 MiB/s: 5 MiB in a quarter of a second.
        measure(&mut pace, 64 * MIB, Duration::from_millis(3200));
        assert!(pace.is_calm(at(5 * MIB - 8), false) && !pace.is_calm(at(5 * MIB), false));
        assert_eq!(pace.step(at(5 * MIB), false, false, since), Step::Hurry);
        assert!(pace.is_calm(at(10 * MIB - 8), false), "asked for once");
        assert_eq!(pace.step(at(10 * MIB), false, false, since), Step::Wait(10 * MIB));
        pace.begin_sync(at(10 * MIB));
        pace.note_change();
        assert_eq!(pace.step(at(14 * MIB), true, true, Instant::now()), Step::GoOn);
        assert_eq!(pace.step(at(15 * MIB), true, true, Instant::now()), Step::Wait(10 * MIB));
    }

    #[test]
    fn a_quota_follows_the_device_within_its_bounds() {
        let (mut pace, _) = begun(0);
        measure(&mut pace, 8, SECOND);
        assert_eq!(pace.quota_bytes, FIRST_QUOTA_BYTES, "a small sync tells nothing");
        measure(&mut pace, MIB, 1000 * SECOND);
        assert_eq!(pace.quota_bytes, QUOTA_BYTES_MIN);
        measure(&mut pace, 9 * MIB, SECOND / 4);
        assert_eq!(pace.quota_bytes, 5 * MIB);
        for _ in 0..100 {
            measure(&mut pace, u64::MAX, Duration::ZERO);
        }
        assert!((QUOTA_BYTES_MAX - 1..=QUOTA_BYTES_MAX).contains(&pace.quota_bytes));
    }

    #[test]
    fn a_writer_without_a_bound_never_waits() {
        let mut pace = Pace::new(None, at(0));
        pace.note_change();
        pace.set_asked(true);
        let now = Instant::now() + 3600 * SECOND;
        measure(&mut pace, MIB, 1000 * SECOND);
        assert!(pace.is_calm(at(1 << 40), false));
        assert_eq!(pace.step(at(1 << 40), true, true, now), Step::GoOn);
    }
}
