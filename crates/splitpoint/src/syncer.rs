//! The background sync behind [`Durability::Async`](crate::Durability::Async), and the end of a
//! checkpoint.
//!
//! A sync of what a second writes took 0.1 to 0.2 s in the measurements of `record/` (sync and
//! close of W2), so the next operation cannot do it without being the slow one: a thread does,
//! which starts with the first change that asks for it and sleeps when nothing is due. When it is
//! due, and how a writer keeps to the pace of the device: `store::pace`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::background::{Monitor, Worker};
use crate::store::Store;

/// The thread, and what it waits for.
#[derive(Debug, Default)]
pub(crate) struct Syncer(Worker<State>);

#[derive(Debug, Default)]
struct State {
    due: Option<Instant>,
    is_checkpoint_written: bool,
    is_stopped: bool,
}

impl Syncer {
    /// Asks for a sync of `store` after `delay`, or before if that was asked for; returns whether
    /// there is a thread to do it.
    #[cold]
    pub(crate) fn schedule(&self, store: &Arc<Store>, delay: Duration) -> bool {
        // A delay that no clock can show is as good as none at all.
        let due = Instant::now().checked_add(delay);
        self.ask(store, |state| state.due = [state.due, due].into_iter().flatten().min())
    }

    /// Asks for the checkpoint that has been written to be made durable, and returns whether there
    /// is a thread to do it; if not, the next change asks again.
    #[cold]
    pub(crate) fn finish_checkpoint(&self, store: &Arc<Store>) -> bool {
        self.ask(store, |state| state.is_checkpoint_written = true)
    }

    fn ask(&self, store: &Arc<Store>, what: impl FnOnce(&mut State)) -> bool {
        self.0.shared().change(what);
        let store = store.clone();
        self.0.begin("splitpoint-sync", move |shared| run(shared, &store))
    }

    /// Ends the thread, without a last sync.
    pub(crate) fn stop(&mut self) {
        self.0.end(|state| state.is_stopped = true);
    }
}

fn run(shared: &Monitor<State>, store: &Store) {
    let mut state = shared.lock();
    while !state.is_stopped {
        if std::mem::take(&mut state.is_checkpoint_written) {
            drop(state);
            // As below.
            let _ = store.finish_checkpoint();
            state = shared.lock();
            continue;
        }
        let Some(due) = state.due else {
            state = shared.wait(state);
            continue;
        };
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            state = shared.wait_for(state, left);
            continue;
        }
        state.due = None;
        drop(state);
        // An error stays with the store: the next change and the next sync return it.
        let _ = store.sync_in_background();
        state = shared.lock();
    }
}
