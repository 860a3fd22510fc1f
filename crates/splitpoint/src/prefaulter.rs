//! A thread that makes memory ready which the writer will reach soon.
//!
//! A page that is touched for the first time costs microseconds: the kernel finds and clears it, a
//! virtual machine gets it from its host, a file system notes that it is dirty. A segment of the
//! log has 512 pages. Taken by the put that opens it, they were 6 to 10 ms, and a third to a half of
//! the time of creating a store (`record/2026-11-21-prefault`).
//!
//! The thread begins with the first large segment.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::storage::fork::Origin;

/// What makes memory ready.
pub(crate) type Work = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A piece of work that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// The thread, and what it waits for.
#[derive(Debug, Default)]
pub(crate) struct Prefaulter {
    origin: Origin,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Something was asked for, or done, or the thread shall end.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    asked_count: u64,
    waiting: VecDeque<(Ticket, Work)>,
    running: Option<Ticket>,
    /// Work that failed, until its result is asked for.
    failed: Vec<(Ticket, io::Error)>,
    is_stopped: bool,
}

impl Prefaulter {
    /// Asks for `work` to be done soon.
    #[cold]
    pub(crate) fn ask(&self, work: Work) -> Ticket {
        if !self.origin.is_here() {
            return Ticket(0);
        }
        let ticket = {
            let mut state = self.shared.state();
            state.asked_count += 1;
            let ticket = Ticket(state.asked_count);
            state.waiting.push_back((ticket, work));
            ticket
        };
        self.shared.changed.notify_all();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = self.shared.clone();
            let spawned = std::thread::Builder::new()
                .name("splitpoint-pages".to_string())
                .spawn(move || shared.run());
            // Without a thread `finish` does the work.
            *thread = spawned.ok();
        }
        ticket
    }

    /// Returns the result of a piece of work: waits for the thread that is at it, and does it here
    /// if that has not begun.
    pub(crate) fn finish(&self, ticket: Ticket) -> io::Result<()> {
        if !self.origin.is_here() {
            // A table in memory that a child has: its pages come when they are touched.
            return Ok(());
        }
        let mut state = self.shared.state();
        if let Some(at) = state.waiting.iter().position(|(waiting, _)| *waiting == ticket) {
            let (_, work) = state.waiting.remove(at).expect("it was just found");
            drop(state);
            return work();
        }
        while state.running == Some(ticket) {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match state.failed.iter().position(|(failed, _)| *failed == ticket) {
            Some(at) => Err(state.failed.swap_remove(at).1),
            None => Ok(()),
        }
    }
}

impl Drop for Prefaulter {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // The thread stayed in the parent.
            std::mem::forget(self.thread.get_mut().map(Option::take));
            return;
        }
        self.shared.state().is_stopped = true;
        self.shared.changed.notify_all();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It cannot fail: what goes wrong is a result.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is valid after every statement that changes it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.state();
        while !state.is_stopped {
            let Some((ticket, work)) = state.waiting.pop_front() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.running = Some(ticket);
            drop(state);
            let done = work();
            state = self.state();
            state.running = None;
            state.failed.extend(done.err().map(|error| (ticket, error)));
            self.changed.notify_all();
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn work_is_done_once_and_its_error_comes_back() {
        let prefaulter = Prefaulter::default();
        let done_count = Arc::new(AtomicU32::new(0));
        let tickets: Vec<Ticket> = (0..50)
            .map(|i| {
                let done_count = done_count.clone();
                prefaulter.ask(Box::new(move || {
                    done_count.fetch_add(1, Ordering::Relaxed);
                    if i % 7 == 3 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
                }))
            })
            .collect();
        for (i, ticket) in tickets.into_iter().enumerate().rev() {
            assert_eq!(prefaulter.finish(ticket).is_err(), i % 7 == 3);
        }
        assert_eq!(done_count.load(Ordering::Relaxed), 50);
    }

    #[test]
    fn work_that_has_not_begun_is_dropped_with_its_prefaulter() {
        let (is_let_go, lets_go) = std::sync::mpsc::channel();
        let done_count = Arc::new(AtomicU32::new(0));
        let prefaulter = Prefaulter::default();
        prefaulter.ask(Box::new(move || lets_go.recv().map_err(io::Error::other)));
        for _ in 0..3 {
            let done_count = done_count.clone();
            prefaulter.ask(Box::new(move || {
                done_count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }));
        }
        prefaulter.shared.state().is_stopped = true;
        is_let_go.send(()).unwrap();
        drop(prefaulter);
        assert_eq!(done_count.load(Ordering::Relaxed), 0);
    }
}
