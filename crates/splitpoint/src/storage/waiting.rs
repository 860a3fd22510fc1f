//! What a program is told while it waits for others.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::holder::{Holder, HolderRole};
use crate::options::{OnWait, Options};

/// How long to wait before the program is told for whom, and between two looks whether it is somebody else.
const IN_SILENCE: Duration = Duration::from_secs(1);

/// A wait that has begun.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    on_wait: Option<&'a OnWait>,
    since: Instant,
    /// When to look, and who stood in the way at the last look.
    next: Duration,
    told: Option<(Option<u32>, HolderRole)>,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(options: &'a Options) -> Self {
        let on_wait = options.on_wait.as_ref();
        Self { on_wait, since: Instant::now(), next: IN_SILENCE, told: None }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Tells the program who stands in the way, if it is to know now: the first of the holders that
    /// `refused` names, if it is not the same one.
    pub(crate) fn tell(&mut self, refused: impl FnOnce() -> Error) {
        let Some(on_wait) = self.on_wait.filter(|_| self.elapsed() >= self.next) else { return };
        self.next = self.elapsed() + IN_SILENCE;
        let Error::Locked { holders, .. } = refused() else { return };
        let first = holders.first().map(|&Holder { pid, role, .. }| (pid, role));
        let first = first.unwrap_or((None, HolderRole::Writer));
        if self.told.replace(first) != Some(first) {
            on_wait.tell(&holders);
        }
    }
}
