//! Progress of long work in the lab, and how Ctrl-C ends it.

use std::path::Path;

use splitpoint_lab::keys::{Done, Phase, Watch};

use crate::console::Console;
use crate::failure::Exit;
use crate::interrupt::Interrupt;
use crate::progress::{Progress, ProgressMode, Total};

/// Shows the progress of the work and notices Ctrl-C.
pub(super) struct Watching {
    /// Set once the work has a partial result to report.
    interrupt: Option<Interrupt>,
    mode: ProgressMode,
    console: Console,
    current: Option<(&'static str, Progress)>,
    last: Done,
    input_bytes: Option<u64>,
}

impl Watching {
    /// Begins to watch. Ctrl-C ends the process until [`stops_by_itself`](Self::stops_by_itself).
    pub(super) fn new(mode: ProgressMode, console: Console) -> Self {
        let last = Done { key_count: 0, key_count_total: None, input_bytes: 0 };
        Self { interrupt: None, mode, console, current: None, last, input_bytes: None }
    }

    /// Measures the first phase by the bytes of this file, if it is one.
    pub(super) fn expect_bytes(&mut self, path: &Path) {
        let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
        self.input_bytes = metadata.map(|metadata| metadata.len());
    }

    /// From now on, the first Ctrl-C stops the work, which then reports its partial result; a
    /// second one ends the process.
    pub(super) fn stops_by_itself(&mut self) {
        self.interrupt.get_or_insert_with(Interrupt::watch);
    }

    /// Ends the progress of the current phase.
    pub(super) fn end_phase(&mut self) {
        if let Some((_, mut progress)) = self.current.take() {
            progress.finish(self.last.key_count, self.last.input_bytes);
        }
    }

    /// Returns the exit code of the signal that arrived, if any.
    pub(super) fn exit(&self) -> Option<Exit> {
        self.interrupt.as_ref()?.exit()
    }
}

impl Watch for Watching {
    fn progress(&mut self, phase: Phase, done: Done) {
        // All passes of one kind count as one phase.
        let passed = done.key_count_total.unwrap_or(0) * (phase.pass - 1);
        let total = done.key_count_total.map(|total| total * phase.pass_count);
        let done = Done { key_count: done.key_count + passed, ..done };
        if self.current.as_ref().is_none_or(|(current, _)| *current != phase.name) {
            self.end_phase();
            let total = match (total, self.input_bytes) {
                (Some(total), _) => Total::Records(total),
                (None, Some(bytes)) if bytes > 0 && done.input_bytes > 0 => Total::Bytes(bytes),
                _ => Total::Unknown,
            };
            let progress = Progress::start(self.mode, self.console, phase.name, total);
            self.current = Some((phase.name, progress));
        }
        self.last = done;
        if let Some((_, progress)) = &mut self.current {
            progress.update(done.key_count, done.input_bytes);
        }
    }

    fn is_stopped(&self) -> bool {
        self.exit().is_some()
    }
}
