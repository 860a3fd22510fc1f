//! A background thread that faults in pages ahead of the writer.
//!
//! The first access to a page costs microseconds: the kernel finds and clears the page, a virtual
//! machine gets it from its host, a file system marks it dirty. A log segment has 512 pages. When
//! the put that opens a segment took these faults itself, they cost 6 to 10 ms, and a third to a
//! half of the time of filling a new store (`record/2026-11-21-xeon-2core/prefault`).
//!
//! The thread starts with the first large segment, or when a table in memory reaches 16 MiB. If it
//! gets no request for a second, the table has stopped growing fast, and it does the work deferred
//! to idle times.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use crate::background::{Monitor, Worker};

/// Work that prepares memory. It need not succeed: the writer faults in whatever is missing.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Time without a request after which the thread does its idle work.
const IDLE: Duration = Duration::from_secs(1);

/// Identifies a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// The thread and its queue of requests.
#[derive(Debug, Default)]
pub(crate) struct Prefaulter(Worker<State>);

#[derive(Default)]
struct State {
    asked_count: u64,
    waiting: VecDeque<(Ticket, Work)>,
    /// The work to do when there has been no request for [`IDLE`].
    when_idle: Option<Work>,
    running: Option<Ticket>,
    is_stopped: bool,
}

impl Prefaulter {
    /// Requests `work` to be done soon.
    #[cold]
    pub(crate) fn ask(&self, work: Work) -> Ticket {
        if !self.0.is_here() {
            // The child of a fork has no such thread; a table in memory faults in its pages as it
            // accesses them.
            return Ticket(0);
        }
        let ticket = self.0.shared().change(|state| {
            state.asked_count += 1;
            let ticket = Ticket(state.asked_count);
            state.waiting.push_back((ticket, work));
            ticket
        });
        // Without a thread, `finish` does the work.
        self.0.begin("splitpoint-pages", run);
        ticket
    }

    /// Has `work` done once nothing has been asked for a second, in place of what was to be done
    /// then. Nobody waits for it, and a drop may forget it.
    pub(crate) fn ask_when_idle(&self, work: Work) {
        if self.0.is_here() {
            self.0.shared().change(|state| state.when_idle = Some(work));
            self.0.begin("splitpoint-pages", run);
        }
    }

    /// Returns when the work is done: waits if the thread has begun it, and otherwise does it here.
    pub(crate) fn finish(&self, ticket: Ticket) {
        if !self.0.is_here() {
            return;
        }
        let mut state = self.0.shared().lock();
        if let Some(at) = state.waiting.iter().position(|(waiting, _)| *waiting == ticket) {
            let (_, work) = state.waiting.remove(at).expect("it was just found");
            drop(state);
            return work();
        }
        while state.running == Some(ticket) {
            state = self.0.shared().wait(state);
        }
    }
}

impl Drop for Prefaulter {
    fn drop(&mut self) {
        self.0.end(|state| state.is_stopped = true);
    }
}

fn run(shared: &Monitor<State>) {
    let mut state = shared.lock();
    while !state.is_stopped {
        let Some((ticket, work)) = state.waiting.pop_front() else {
            state = wait(shared, state);
            continue;
        };
        state.running = Some(ticket);
        drop(state);
        work();
        shared.change(|state| state.running = None);
        state = shared.lock();
    }
}

/// Waits for a request, and does what is left for idle times if none comes for [`IDLE`].
fn wait<'a>(shared: &'a Monitor<State>, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    if state.when_idle.is_none() {
        return shared.wait(state);
    }
    let asked_count = state.asked_count;
    let due = Instant::now() + IDLE;
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if state.is_stopped || state.asked_count != asked_count {
            return state;
        }
        if left.is_zero() {
            break;
        }
        state = shared.wait_for(state, left);
    }
    let work = state.when_idle.take();
    drop(state);
    if let Some(work) = work {
        work();
    }
    shared.lock()
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Work that has not begun is done by `finish`; work that has is waited for.
    #[test]
    fn work_is_done_once_before_finish_returns() {
        let prefaulter = Prefaulter::default();
        let done: Vec<Arc<AtomicU32>> = (0..50).map(|_| Arc::default()).collect();
        let tickets: Vec<Ticket> = done
            .iter()
            .map(|done| {
                let done = done.clone();
                prefaulter.ask(Box::new(move || {
                    std::thread::yield_now();
                    done.fetch_add(1, Ordering::Relaxed);
                }))
            })
            .collect();
        for (done, ticket) in done.iter().zip(tickets).rev() {
            prefaulter.finish(ticket);
            assert_eq!(done.load(Ordering::Relaxed), 1);
        }
        drop(prefaulter);
        assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn work_that_has_not_begun_is_dropped_with_its_prefaulter() {
        let (is_let_go, lets_go) = std::sync::mpsc::channel::<()>();
        let done_count = Arc::new(AtomicU32::new(0));
        let prefaulter = Prefaulter::default();
        prefaulter.ask(Box::new(move || {
            let _ = lets_go.recv();
        }));
        for _ in 0..3 {
            let done_count = done_count.clone();
            prefaulter.ask(Box::new(move || {
                done_count.fetch_add(1, Ordering::Relaxed);
            }));
        }
        prefaulter.0.shared().lock().is_stopped = true;
        is_let_go.send(()).unwrap();
        drop(prefaulter);
        assert_eq!(done_count.load(Ordering::Relaxed), 0);
    }
}
