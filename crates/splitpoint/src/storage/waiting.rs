//! The wait of an open or a change for other handles, and its reports to the program.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::holder::{Holder, HolderRole};
use crate::options::Options;

/// How long to wait before the program is told for which handle it waits, and between two checks
/// whether that has changed.
const IN_SILENCE: Duration = Duration::from_secs(1);

/// A wait that has begun: of a change for its turn, or of an open, which may have to wait in several steps.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    options: &'a Options,
    since: Instant,
    /// When the step began.
    step_since: Instant,
    /// When to look, and who stood in the way at the last look.
    next: Duration,
    told: Option<(Option<u32>, HolderRole)>,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(options: &'a Options) -> Self {
        let now = Instant::now();
        Self { options, since: now, step_since: now, next: IN_SILENCE, told: None }
    }

    /// Returns a wait that began `before`.
    #[cfg(test)]
    pub(crate) fn begun(options: &'a Options, before: Duration) -> Self {
        let since = Instant::now().checked_sub(before).expect("the clock reaches back so far");
        Self { since, ..Self::new(options) }
    }

    /// Begins the next step.
    pub(crate) fn begin_step(&mut self) {
        self.step_since = Instant::now();
    }

    pub(crate) fn step_elapsed(&self) -> Duration {
        self.step_since.elapsed()
    }

    /// Returns whether all steps have taken as long as the options allow, and this one at least `step_min`.
    pub(crate) fn is_late(&self, step_min: Duration) -> bool {
        let wait_max = self.options.lock_timeout.unwrap_or_default();
        self.elapsed() >= wait_max && self.step_elapsed() >= step_min
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Tells the program who stands in the way, if it is to know now: the first of the holders that
    /// `refused` names, if it is not the same one.
    pub(crate) fn tell(&mut self, refused: impl FnOnce() -> Error) {
        let on_wait = self.options.on_wait.as_ref();
        let Some(on_wait) = on_wait.filter(|_| self.elapsed() >= self.next) else { return };
        self.next = self.elapsed() + IN_SILENCE;
        let Error::Locked { holders, .. } = refused() else { return };
        let first = holders.first().map(|&Holder { pid, role, .. }| (pid, role));
        let first = first.unwrap_or((None, HolderRole::Writer));
        if self.told.replace(first) != Some(first) {
            on_wait.tell(&holders);
        }
    }
}
