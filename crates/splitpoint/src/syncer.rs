//! The background sync behind [`Durability::Async`](crate::Durability::Async), which also completes
//! checkpoints, and gives pages of free space back.
//!
//! A sync of what one second writes took 0.1 to 0.2 s in the measurements of `record/` (sync and
//! close of W2), so an operation that did it would be slow. A thread does it instead. The thread
//! starts with the first change that needs it, and sleeps while nothing is due. `store::pace`
//! decides when a sync is due, and how the writer keeps to the pace of the device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::background::{Monitor, Worker};
use crate::store::Store;

/// The thread, and the requests that it waits for.
#[derive(Debug, Default)]
pub(crate) struct Syncer(Worker<State>);

#[derive(Debug, Default)]
struct State {
    due: Option<Instant>,
    is_checkpoint_due: bool,
    is_cooling_due: bool,
    is_stopped: bool,
}

impl Syncer {
    /// Schedules a sync of `store` after `delay`, unless an earlier one is scheduled; returns
    /// whether there is a thread to do it.
    #[cold]
    pub(crate) fn schedule(&self, store: &Arc<Store>, delay: Duration) -> bool {
        // A delay that overflows the clock is as good as none.
        let due = Instant::now().checked_add(delay);
        self.ask(store, |state| state.due = [state.due, due].into_iter().flatten().min())
    }

    /// Has a checkpoint that has begun made and made durable, and returns whether there is a thread
    /// to do it.
    #[cold]
    pub(crate) fn make_checkpoint(&self, store: &Arc<Store>) -> bool {
        self.ask(store, |state| state.is_checkpoint_due = true)
    }

    /// Has pages of free space given back that are too many, and returns whether there is a thread to do it.
    #[cold]
    pub(crate) fn cool_excess(&self, store: &Arc<Store>) -> bool {
        self.ask(store, |state| state.is_cooling_due = true)
    }

    fn ask(&self, store: &Arc<Store>, what: impl FnOnce(&mut State)) -> bool {
        self.0.shared().change(what);
        let store = store.clone();
        self.0.begin("splitpoint-sync", move |shared| run(shared, &store))
    }

    /// Stops the thread, without a final sync.
    pub(crate) fn stop(&mut self) {
        self.0.end(|state| state.is_stopped = true);
    }
}

fn run(shared: &Monitor<State>, store: &Store) {
    let mut state = shared.lock();
    while !state.is_stopped {
        if std::mem::take(&mut state.is_checkpoint_due) {
            drop(state);
            let walked = store.walk_checkpoint(|| sync_if_due(shared, store));
            // The store keeps an error: see below.
            let _ = walked.and_then(|()| store.finish_in_background());
            // What changes have freed meanwhile, which asked for nothing.
            state = shared.lock();
            state.is_cooling_due = true;
            continue;
        }
        if std::mem::take(&mut state.is_cooling_due) {
            drop(state);
            // Pages that stay only take room.
            let may_go_on = || sync_if_due(shared, store) && !shared.lock().is_checkpoint_due;
            let _ = store.cool_excess(may_go_on);
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
        // The store keeps an error for the next change and the next sync.
        let _ = store.sync_in_background();
        state = shared.lock();
    }
}

/// Does the sync that has become due during something longer; returns whether to go on with that.
fn sync_if_due(shared: &Monitor<State>, store: &Store) -> bool {
    let mut state = shared.lock();
    if state.due.is_some_and(|due| due <= Instant::now()) {
        state.due = None;
        drop(state);
        // The store keeps an error: see above.
        let _ = store.sync_in_background();
        state = shared.lock();
    }
    !state.is_stopped
}
