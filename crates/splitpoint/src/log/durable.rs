//! Who waits until the log is durable: threads that wait together share one flush.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// How often a leader gives way to threads that may join its sync: some tens of microseconds.
const GATHER_YIELDS: usize = 64;

/// The durable end of the log, and those who wait for it to pass their records.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether there is a failure, for those who do not want the lock.
    has_failed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    durable_lsn: u64,
    has_leader: bool,
    /// What the threads wait for that have not returned yet.
    waiting: Vec<u64>,
    /// How many waited when the last sync began.
    last_group_count: usize,
    /// The first sync that failed. What it covered may be lost although a later sync succeeds, so
    /// the handle promises nothing any more.
    failure: Option<String>,
}

impl GroupCommit {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is valid after every statement that changes it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that the log is durable up to `lsn`, as it was found when the store was opened.
    pub(crate) fn start_at(&self, lsn: u64) {
        self.state().durable_lsn = lsn;
    }

    /// Returns how much of the log is durable.
    pub(crate) fn durable_lsn(&self) -> u64 {
        self.state().durable_lsn
    }

    /// Returns the first failure as an error, if there was one.
    pub(crate) fn check(&self) -> Result<()> {
        self.state().check()
    }

    /// As [`check`](Self::check), without a lock when there was none.
    #[inline]
    pub(crate) fn check_quickly(&self) -> Result<()> {
        if self.has_failed.load(Ordering::Acquire) { self.check() } else { Ok(()) }
    }

    /// Returns when the log is durable up to `lsn` or a sync has failed.
    ///
    /// One of the waiting threads leads: it calls `sync`, which returns how far it got, for all
    /// that were appended until then. The others wait for it.
    pub(crate) fn wait_for(&self, lsn: u64, sync: impl Fn() -> Result<u64>) -> Result<()> {
        let mut state = self.state();
        state.waiting.push(lsn);
        let waited = loop {
            if let Err(error) = state.check() {
                break Err(error);
            }
            if state.durable_lsn >= lsn {
                break Ok(());
            }
            if state.has_leader {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state = self.gather(state);
            match self.lead(state, &sync) {
                Ok(led) => state = led,
                Err(error) => {
                    state = self.state();
                    break Err(error);
                }
            }
        };
        if let Some(own) = state.waiting.iter().position(|&other| other == lsn) {
            state.waiting.swap_remove(own);
        }
        waited
    }

    /// Lets the threads that shared the last sync come back with their next records, so that they
    /// share this one too: without it every second sync would be for one thread alone. A thread
    /// that is alone does not wait.
    fn gather<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.has_leader = true;
        for _ in 0..GATHER_YIELDS {
            if state.waiting_count() >= state.last_group_count {
                break;
            }
            drop(state);
            std::thread::yield_now();
            state = self.state();
        }
        state.last_group_count = state.waiting_count();
        state
    }

    /// Syncs whether or not anybody waits, after any sync that is under way.
    pub(crate) fn sync_always(&self, sync: impl Fn() -> Result<u64>) -> Result<()> {
        let mut state = self.state();
        while state.has_leader {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.check()?;
        self.lead(state, &sync).map(drop)
    }

    /// Says that a sync failed which nobody waited for.
    pub(crate) fn fail(&self, error: &Error) {
        self.note_failure(&mut self.state(), error);
    }

    fn note_failure(&self, state: &mut State, error: &Error) {
        state.failure.get_or_insert(describe(error));
        self.has_failed.store(true, Ordering::Release);
    }

    /// Calls `sync` without the lock and tells everybody how far it got.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        sync: &impl Fn() -> Result<u64>,
    ) -> Result<MutexGuard<'a, State>> {
        state.has_leader = true;
        drop(state);
        let synced = sync();
        let mut state = self.state();
        state.has_leader = false;
        self.changed.notify_all();
        match synced {
            Ok(durable_lsn) => {
                state.durable_lsn = state.durable_lsn.max(durable_lsn);
                Ok(state)
            }
            Err(error) => {
                self.note_failure(&mut state, &error);
                Err(error)
            }
        }
    }
}

impl State {
    /// Returns how many threads wait for what is not durable.
    fn waiting_count(&self) -> usize {
        self.waiting.iter().filter(|&&lsn| lsn > self.durable_lsn).count()
    }

    fn check(&self) -> Result<()> {
        match &self.failure {
            Some(reason) => Err(Error::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

fn describe(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
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

    #[test]
    fn the_first_failure_is_told_to_everyone_after_it() {
        let group = GroupCommit::default();
        let full = || Err(Error::Full { what: "disk", bytes: 1 });
        assert!(matches!(group.wait_for(8, full), Err(Error::Full { .. })));
        assert!(matches!(group.wait_for(8, || Ok(8)), Err(Error::Poisoned { .. })));
        assert!(matches!(group.check(), Err(Error::Poisoned { .. })));
    }
}
