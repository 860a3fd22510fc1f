//! Group commit: threads that wait until the log is durable share one flush.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use crate::background::Monitor;
use crate::error::{Error, Result};
use crate::health::Health;

/// How often a leader yields to threads that may join its sync: some tens of microseconds.
const GATHER_YIELDS: usize = 64;

/// The durable LSN, and the threads that wait for it to reach their records.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    state: Monitor<State>,
    /// Records a failed sync.
    health: Arc<Health>,
    /// Whether a sync is in progress, for threads that do not take the lock.
    is_syncing: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    durable_lsn: u64,
    has_leader: bool,
    /// Time of the oldest change that the sync in progress covers.
    syncing_since: Option<Instant>,
    /// The LSNs for which threads are waiting.
    waiting: Vec<u64>,
    /// Number of waiting threads when the last sync began.
    last_group_count: usize,
}

impl GroupCommit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Sets the durable LSN that the open has found.
    pub(crate) fn start_at(&self, lsn: u64) {
        let mut state = self.state();
        assert!(state.durable_lsn == 0 && state.waiting.is_empty(), "nobody has waited yet");
        state.durable_lsn = lsn;
    }

    /// Raises the durable LSN to `lsn`, whichever handle has synced.
    pub(crate) fn note_durable(&self, lsn: u64) {
        let mut state = self.state();
        state.durable_lsn = state.durable_lsn.max(lsn);
    }

    /// Returns the durable LSN.
    pub(crate) fn durable_lsn(&self) -> u64 {
        self.state().durable_lsn
    }

    /// Returns the group commit of a handle with this health.
    pub(crate) fn new(health: Arc<Health>) -> Self {
        Self { health, ..Self::default() }
    }

    /// Returns the first failure as an error, if there was one.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.health.check()
    }

    /// Returns whether a sync is in progress. The answer may be slightly stale.
    #[inline]
    pub(crate) fn is_syncing(&self) -> bool {
        self.is_syncing.load(Ordering::Relaxed)
    }

    /// Sets the time of the oldest change that the sync that begins now covers.
    pub(crate) fn set_syncing_since(&self, since: Option<Instant>) {
        self.state().syncing_since = since;
    }

    /// Returns the time [set](Self::set_syncing_since) for the sync in progress, if there is one.
    pub(crate) fn syncing_since(&self) -> Option<Instant> {
        self.state().syncing_since
    }

    /// Waits until the log is durable up to `lsn` or a sync has failed.
    ///
    /// One of the waiting threads becomes the leader: it calls `sync`, which covers everything
    /// appended so far and returns the LSN that it covers. The others wait for the leader.
    pub(crate) fn wait_for(&self, lsn: u64, sync: impl Fn() -> Result<u64>) -> Result<()> {
        let mut state = self.state();
        state.waiting.push(lsn);
        let waited = loop {
            if let Err(error) = self.check() {
                break Err(error);
            }
            if state.durable_lsn >= lsn {
                break Ok(());
            }
            if state.has_leader {
                state = self.state.wait(state);
                continue;
            }
            state = self.gather(state);
            match self.lead(state, &sync) {
                Ok(led) => {
                    assert!(led.durable_lsn >= lsn, "a sync covers what is waited for");
                    state = led;
                }
                Err(error) => {
                    state = self.state();
                    break Err(error);
                }
            }
        };
        let own = state.waiting.iter().position(|&other| other == lsn);
        state.waiting.swap_remove(own.expect("this thread is among those that wait"));
        waited
    }

    /// Gives the threads that shared the last sync time to return with their next records, so that
    /// they share this one, too. Without it, every second sync would serve only one thread. A
    /// single thread does not wait.
    fn gather<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        assert!(!state.has_leader, "one thread leads");
        state.has_leader = true;
        for _ in 0..GATHER_YIELDS {
            if state.waiting_count() >= state.last_group_count {
                break;
            }
            drop(state);
            std::thread::yield_now();
            state = self.state();
        }
        assert!(state.has_leader, "nobody else ends the lead of this thread");
        state.last_group_count = state.waiting_count();
        state
    }

    /// Syncs even if no thread waits, after any sync in progress.
    pub(crate) fn sync_always(&self, sync: impl Fn() -> Result<u64>) -> Result<()> {
        let mut state = self.state();
        while state.has_leader {
            state = self.state.wait(state);
        }
        self.check()?;
        self.lead(state, &sync).map(drop)
    }

    /// Records the failure of a sync for which no thread waited.
    pub(crate) fn fail(&self, error: &Error) {
        self.health.fail(error);
    }

    /// Calls `sync` without the lock, and publishes the LSN that it covers.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        sync: &impl Fn() -> Result<u64>,
    ) -> Result<MutexGuard<'a, State>> {
        state.has_leader = true;
        self.is_syncing.store(true, Ordering::Relaxed);
        drop(state);
        let leader = Leader(self);
        let synced = sync();
        std::mem::forget(leader);
        if let Err(error) = &synced {
            // Record the failure before waking the others.
            self.fail(error);
        }
        let mut state = self.end_of_sync();
        let durable_lsn = synced?;
        assert!(durable_lsn.is_multiple_of(8), "a sync ends where a record ends");
        state.durable_lsn = state.durable_lsn.max(durable_lsn);
        state.syncing_since = None;
        Ok(state)
    }

    fn end_of_sync(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        debug_assert!(state.has_leader);
        state.has_leader = false;
        self.is_syncing.store(false, Ordering::Relaxed);
        // The woken threads block on the lock until the caller has updated the durable LSN and
        // unlocks.
        self.state.wake();
        state
    }
}

/// The leader of a sync. Dropped only if `sync` panics, so that the others do not wait forever.
struct Leader<'a>(&'a GroupCommit);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let reason = "a thread failed while it synced the store".to_string();
        self.0.fail(&Error::Poisoned { reason });
        drop(self.0.end_of_sync());
    }
}

impl State {
    /// Returns how many threads wait for what is not durable.
    fn waiting_count(&self) -> usize {
        self.waiting.iter().filter(|&&lsn| lsn > self.durable_lsn).count()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn threads_that_wait_together_share_a_sync() {
        let group = GroupCommit::default();
        let (appended, sync_count) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let lsn = appended.fetch_add(8, Ordering::SeqCst) + 8;
                        let sync = || {
                            sync_count.fetch_add(1, Ordering::SeqCst);
                            let durable_lsn = appended.load(Ordering::SeqCst);
                            std::thread::yield_now();
                            Ok(durable_lsn)
                        };
                        group.wait_for(lsn, sync).unwrap();
                        assert!(group.state().durable_lsn >= lsn);
                    }
                });
            }
        });
        assert!(sync_count.load(Ordering::SeqCst) <= 800);
        assert_eq!(group.state().durable_lsn, 6400);
    }

    /// One thread leads and panics while another waits for it.
    #[test]
    fn a_leader_that_panics_leaves_an_error_and_nobody_waiting() {
        let group = GroupCommit::default();
        let (is_leading, leads) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| {
                let sync = || {
                    is_leading.send(()).expect("the other thread waits for it");
                    while group.state().waiting.len() < 2 {
                        std::thread::yield_now();
                    }
                    panic!("a sync that panics");
                };
                drop(group.wait_for(8, sync));
            });
            leads.recv().expect("the leader sends it");
            let waited = group.wait_for(8, || Ok(8));
            assert!(matches!(waited, Err(Error::Poisoned { .. })), "{waited:?}");
            assert!(leader.join().is_err());
        });
        assert!(!group.is_syncing());
        assert!(matches!(group.check(), Err(Error::Poisoned { .. })));
    }

    #[test]
    fn the_first_failure_is_told_to_everyone_after_it() {
        let group = GroupCommit::default();
        let full = || Err(Error::Full { what: "disk", bytes: 1 });
        assert!(matches!(group.wait_for(8, full), Err(Error::Full { .. })));
        assert!(matches!(group.wait_for(8, || Ok(8)), Err(Error::Poisoned { .. })));
        assert!(matches!(group.check(), Err(Error::Poisoned { .. })));
    }
}
