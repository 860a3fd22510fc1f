//! A background thread that publishes the cost of lookups to other processes.
//!
//! A lookup adds to the counters of its thread in this process: see
//! [`instrument`](crate::instrument). Ten times a second this thread sums them up, and adds the
//! difference to the counts in the file: see [`shared_counts`](crate::storage::shared_counts). So
//! publishing does not make a lookup more expensive.

use std::sync::Arc;
use std::time::Duration;

use crate::background::{Monitor, Worker};
use crate::stats::Lookups;
use crate::storage::shared_counts::SharedCounts;
use crate::store::Store;

/// How often there is a look at the counters.
const INTERVAL: Duration = Duration::from_millis(100);

/// The thread.
#[derive(Debug, Default)]
pub(crate) struct Publisher(Worker<State>);

#[derive(Debug, Default)]
struct State {
    is_stopped: bool,
}

impl Publisher {
    /// Begins to publish what the lookups of `store` cost, if it counts them in a file that others may
    /// have open.
    pub(crate) fn begin(&self, store: &Arc<Store>) {
        if !store.may_publish_lookups() {
            return;
        }
        let store = store.clone();
        // Without a thread the counts are those of this process alone.
        self.0.begin("splitpoint-counts", move |shared| run(shared, &store));
    }

    /// Publishes what is left and stops the thread.
    pub(crate) fn stop(&mut self) {
        self.0.end(|state| state.is_stopped = true);
    }
}

fn run(shared: &Monitor<State>, store: &Store) {
    let mut published = Published::default();
    let mut state = shared.lock();
    while !state.is_stopped {
        drop(state);
        published.go_on(store);
        state = shared.lock();
        if !state.is_stopped {
            state = shared.wait_for(state, INTERVAL);
        }
    }
    drop(state);
    published.go_on(store);
}

/// What has been published.
#[derive(Default)]
struct Published {
    lookups: Lookups,
    /// Where, once that is allowed.
    counts: Option<SharedCounts>,
}

impl Published {
    /// Publishes what is new.
    fn go_on(&mut self, store: &Store) {
        if self.counts.is_none() {
            self.counts = store.share_counts();
        }
        let (Some(counts), Some(now)) = (&self.counts, store.lookups()) else { return };
        // On a file system that has failed, a store to a mapping may end the process.
        if now != self.lookups && store.region.health().check().is_ok() {
            counts.add(&now.since(&self.lookups));
            self.lookups = now;
        }
    }
}
