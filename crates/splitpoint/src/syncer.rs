//! The background sync behind [`Durability::Async`](crate::Durability::Async), and the end of a
//! checkpoint.
//!
//! A sync of what a second writes took 0.1 to 0.2 s in the measurements of `record/` (sync and
//! close of W2), so the next operation cannot do it without being the slow one: a thread does, which starts with the first change that asks
//! for it and sleeps when nothing is due.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::storage::fork::Origin;
use crate::store::Store;

/// How long after the first change that is not durable the sync begins. It ends within 1 s unless
/// the device is slow.
const INTERVAL: Duration = Duration::from_millis(750);

/// The thread, and what it waits for.
#[derive(Debug, Default)]
pub(crate) struct Syncer {
    origin: Origin,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    due: Option<Instant>,
    is_checkpoint_written: bool,
    is_stopped: bool,
}

impl Syncer {
    /// Asks for a sync of `store` after the interval and returns whether there is a thread to do
    /// it; if not, the next change asks again.
    #[cold]
    pub(crate) fn schedule(&self, store: &Arc<Store>) -> bool {
        self.ask(store, |state| state.due = Some(Instant::now() + INTERVAL))
    }

    /// Asks for the checkpoint that has been written to be made durable, and returns whether there
    /// is a thread to do it; if not, the next change asks again.
    #[cold]
    pub(crate) fn finish_checkpoint(&self, store: &Arc<Store>) -> bool {
        self.ask(store, |state| state.is_checkpoint_written = true)
    }

    fn ask(&self, store: &Arc<Store>, what: impl FnOnce(&mut State)) -> bool {
        what(&mut self.shared.state.lock().unwrap_or_else(PoisonError::into_inner));
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (shared, store) = (self.shared.clone(), store.clone());
            let spawned = std::thread::Builder::new()
                .name("splitpoint-sync".to_string())
                .spawn(move || run(&shared, &store));
            // Without a thread the change is as safe as `Buffered` until the next sync or close.
            *thread = spawned.ok();
        }
        self.shared.changed.notify_one();
        thread.is_some()
    }

    /// Ends the thread, without a last sync.
    pub(crate) fn stop(&mut self) {
        if !self.origin.is_here() {
            // The thread stayed in the parent.
            std::mem::forget(self.thread.get_mut().map(Option::take));
            return;
        }
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).is_stopped = true;
        self.shared.changed.notify_one();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It cannot fail: what it calls returns errors, which the store remembers.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, store: &Store) {
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    while !state.is_stopped {
        if std::mem::take(&mut state.is_checkpoint_written) {
            drop(state);
            // As below.
            let _ = store.finish_checkpoint();
            state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let Some(due) = state.due else {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            let waited = shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        state.due = None;
        drop(state);
        // An error stays with the store: the next change and the next sync return it.
        let _ = store.sync_in_background();
        state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    }
}
