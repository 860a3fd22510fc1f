//! Progress of long work, on standard error.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::console::Console;
use crate::number::{self, counted, grouped};

/// When to show progress
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// A progress bar, if standard error is a terminal and the work takes over half a second
    #[default]
    Auto,
    /// No progress
    Never,
    /// One JSON object per second, and one at the end, on standard error
    Json,
}

/// The unit and total of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Total {
    /// Bytes of input.
    Bytes(u64),
    /// Records.
    Records(u64),
    /// Rounds of the same work.
    Rounds(u64),
    /// Unknown.
    Unknown,
}

/// Whether a bar occupies the last line of standard error.
static IS_BAR_SHOWN: AtomicBool = AtomicBool::new(false);

/// Begins a new line if there is a bar on this one.
pub(crate) fn leave_bar() {
    if IS_BAR_SHOWN.load(Ordering::Relaxed) {
        let _ = writeln!(std::io::stderr());
    }
}

const DELAY: Duration = Duration::from_millis(500);
const INTERVAL_JSON: Duration = Duration::from_secs(1);

/// Progress of one phase of work.
pub(crate) struct Progress {
    phase: &'static str,
    face: Face,
    total: Total,
    started: Instant,
    next: Instant,
}

enum Face {
    None,
    /// A bar, created once the work turns out to be long.
    Bar(Option<ProgressBar>),
    Json,
}

impl Progress {
    /// Starts `phase`.
    pub(crate) fn start(
        mode: ProgressMode,
        console: Console,
        phase: &'static str,
        total: Total,
    ) -> Self {
        let face = match mode {
            ProgressMode::Json => Face::Json,
            ProgressMode::Auto if !console.is_quiet() && std::io::stderr().is_terminal() => {
                Face::Bar(None)
            }
            ProgressMode::Auto | ProgressMode::Never => Face::None,
        };
        let started = Instant::now();
        let wait = if mode == ProgressMode::Json { INTERVAL_JSON } else { DELAY };
        Self { phase, face, total, started, next: started + wait }
    }

    /// Updates the progress.
    pub(crate) fn update(&mut self, records: u64, bytes: u64) {
        if matches!(self.face, Face::None) || Instant::now() < self.next {
            return;
        }
        match &mut self.face {
            Face::None => {}
            Face::Json => {
                self.next += INTERVAL_JSON;
                self.write_json(records, bytes, false);
            }
            Face::Bar(bar) => {
                let bar = bar.get_or_insert_with(|| new_bar(self.phase, self.total));
                IS_BAR_SHOWN.store(true, Ordering::Relaxed);
                let position = match self.total {
                    Total::Bytes(_) => bytes,
                    Total::Records(_) | Total::Rounds(_) | Total::Unknown => records,
                };
                if let Total::Rounds(total) = self.total {
                    bar.set_length(total);
                }
                bar.set_position(position);
                bar.set_message(match self.total {
                    Total::Rounds(_) => counted(records, "round"),
                    // Work on whole segments does not count records.
                    Total::Bytes(_) | Total::Unknown if records == 0 => number::bytes(bytes),
                    _ => counted(records, "record"),
                });
            }
        }
    }

    /// Ends the work: the bar goes away, JSON gets its last object.
    pub(crate) fn finish(&mut self, records: u64, bytes: u64) {
        match &mut self.face {
            Face::None => {}
            Face::Json => self.write_json(records, bytes, true),
            Face::Bar(bar) => {
                if let Some(bar) = bar.take() {
                    bar.finish_and_clear();
                    IS_BAR_SHOWN.store(false, Ordering::Relaxed);
                }
            }
        }
    }

    fn write_json(&self, records: u64, bytes: u64, is_done: bool) {
        let (bytes_total, records_total) = match self.total {
            Total::Bytes(total) => (Some(total), None),
            Total::Records(total) | Total::Rounds(total) => (None, Some(total)),
            Total::Unknown => (None, None),
        };
        let line = serde_json::json!({
            "phase": self.phase,
            "records": records,
            "records_total": records_total,
            "bytes": bytes,
            "bytes_total": bytes_total,
            "seconds": self.started.elapsed().as_secs_f64(),
            "done": is_done,
        });
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Progress of work in several phases.
pub(crate) struct Phases {
    mode: ProgressMode,
    console: Console,
    running: Option<Phase>,
}

/// The current phase and its progress.
struct Phase {
    name: &'static str,
    progress: Progress,
    records: u64,
    bytes: u64,
}

impl Phases {
    /// Begins with no phase.
    pub(crate) fn new(mode: ProgressMode, console: Console) -> Self {
        Self { mode, console, running: None }
    }

    /// Updates the progress of phase `name`, and ends the phase before it.
    pub(crate) fn tell(&mut self, name: &'static str, total: Total, records: u64, bytes: u64) {
        if self.running.as_ref().is_none_or(|running| running.name != name) {
            self.finish();
            let progress = Progress::start(self.mode, self.console, name, total);
            self.running = Some(Phase { name, progress, records, bytes });
        }
        if let Some(running) = &mut self.running {
            (running.records, running.bytes) = (records, bytes);
            // More work may have turned up.
            running.progress.total = total;
            running.progress.update(records, bytes);
        }
    }

    /// Ends the last phase.
    pub(crate) fn finish(&mut self) {
        if let Some(Phase { mut progress, records, bytes, .. }) = self.running.take() {
            progress.finish(records, bytes);
        }
    }
}

fn new_bar(phase: &'static str, total: Total) -> ProgressBar {
    let (bar, template) = match total {
        Total::Bytes(total) | Total::Records(total) | Total::Rounds(total) => {
            (ProgressBar::new(total), "{prefix} [{bar:30}] {percent:>3} %  {msg}  {eta} left")
        }
        Total::Unknown => (ProgressBar::new_spinner(), "{prefix} {spinner} {msg}  {elapsed}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(phase);
    bar
}

/// Returns `records` and their rate over `elapsed`: `51,294 records in 12.3 ms`.
pub(crate) fn pace(records: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    let text = format!("{} in {}", counted(records, "record"), number::duration(elapsed));
    if seconds < 1.0 {
        return text;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate to show")]
    let rate = (number::float(records) / seconds) as u64;
    format!("{text}, {} a second", grouped(rate))
}
