//! Ctrl-C, termination signals and a terminal that goes away: every command ends soon, with one line
//! and the exit code of the signal, and leaves no unfinished file behind.
//!
//! ```text
//! signal --> a thread --+-- if the work polls an `Interrupt`: it ends itself, and reports how far
//!                       |   it got
//!                       +-- otherwise: the thread removes the `Unfinished` files, and ends the
//!                           process
//! ```
//!
//! The second way needs no help from the work, which may be blocked by a pipe or a disk. For a
//! store it is the same as a killed process, which loses nothing.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::console;
use crate::failure::{self, Exit, Failure};
use crate::progress;

/// Time for work that polls an [`Interrupt`] to notice the signal.
const TIME_TO_NOTICE: Duration = Duration::from_secs(2);
/// Time for work to end once it has noticed the signal or begun its last step.
const TIME_TO_END: Duration = Duration::from_secs(5);
/// Interval at which the thread checks whether it has waited long enough.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Time to wait for a blocked standard error.
const TIME_TO_SPEAK: Duration = Duration::from_millis(500);

/// Environment variable with seconds that each of these times lasts at least. Only tests set it: on a
/// machine that is busy enough, the work notices nothing in two seconds.
const PATIENCE_ENV: &str = "SPLITPOINT_TEST_PATIENCE";

/// Attempts to remove a directory.
const REMOVALS: u32 = 10;

/// The first signal that arrived, or 0.
static SIGNAL: AtomicUsize = AtomicUsize::new(0);
/// Whether the work ends by itself, because it has noticed the signal or begun its last step.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// The number of [`Interrupt`]s.
static WATCHERS: AtomicUsize = AtomicUsize::new(0);
/// Whether signals are the business of the parent.
static IS_LEFT_TO_PARENT: AtomicBool = AtomicBool::new(false);
/// Files and directories to remove before the process ends.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on, the first of these signals ends this process, unless the parent made the process
/// ignore it, as a shell does for background jobs and `nohup` for all.
///
/// If no thread can be started, the default action of the system remains: the signal kills.
pub(crate) fn end_on_signals() {
    let (ready, is_ready) = mpsc::channel();
    let spawned = thread::Builder::new().name("signals".to_string()).spawn(move || {
        let signals = register();
        let _ = ready.send(());
        if let Ok((signals, wanted)) = signals {
            serve(signals, &wanted);
        }
    });
    if spawned.is_ok() {
        let _ = is_ready.recv();
    }
}

/// Registers the signals, and returns those that are not ignored.
fn register() -> io::Result<(Signals, Vec<i32>)> {
    // Make a file over the size limit an error instead of the end of the process.
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    // The tests wait until the last of them is caught.
    let wanted = [SIGINT, SIGHUP, SIGTERM].into_iter().filter(|&number| !is_ignored(number));
    let wanted: Vec<i32> = wanted.collect();
    Ok((Signals::new(&wanted)?, wanted))
}

/// Returns whether the parent made this process ignore a signal.
fn is_ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (number - 1) & 1 == 1)
}

fn exit_of(signal: i32) -> Exit {
    match signal {
        SIGTERM => Exit::Terminated,
        SIGHUP => Exit::HungUp,
        _ => Exit::Interrupted,
    }
}

/// Waits for a signal, then for the work to end, then ends the process.
fn serve(mut signals: Signals, wanted: &[i32]) {
    let is_ours = |_: &i32| !IS_LEFT_TO_PARENT.load(Ordering::SeqCst);
    let Some(signal) = signals.forever().find(is_ours) else { return };
    SIGNAL.store(signal.unsigned_abs() as usize, Ordering::SeqCst);
    let came = Instant::now();
    loop {
        // A second signal means that the user does not want to wait.
        let mut is_urgent = false;
        while came.elapsed() < time_to_work() && !is_urgent {
            thread::sleep(LOOK_AGAIN);
            is_urgent = signals.pending().next().is_some();
        }
        // Hold the lock until the process ends, so that no file is begun or finished any more.
        let unfinished = unfinished();
        if !is_urgent && came.elapsed() < time_to_work() {
            // The work began to poll while this thread waited for the lock.
            continue;
        }
        let (mut is_removed, mut is_named) = (false, false);
        for path in &*unfinished {
            match remove(path) {
                Ok(()) => is_removed = true,
                // The file has its name by now; the work only has to sync the directory and report.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    last_step();
                    is_named = true;
                }
                Err(_) => {}
            }
        }
        if is_urgent || is_removed || came.elapsed() >= time_to_work() {
            end(exit_of(signal), state_of(is_removed, is_named), wanted);
        }
    }
}

/// Returns what the last line says of the new file.
fn state_of(is_removed: bool, is_named: bool) -> &'static str {
    if is_removed {
        ": removed the unfinished file"
    } else if is_named {
        ": the new file is complete, but a power loss may undo it"
    } else {
        ""
    }
}

/// Returns the exit code of the signal that has come and after which the work ends itself. Without an
/// [`Interrupt`] it need not: the signals' thread ends the process.
pub(crate) fn came() -> Option<Exit> {
    if WATCHERS.load(Ordering::SeqCst) == 0 {
        return None;
    }
    let signal = i32::try_from(SIGNAL.load(Ordering::SeqCst)).unwrap_or_default();
    (signal != 0).then(|| exit_of(signal))
}

/// Returns whether such a signal has come, which ends every wait.
pub(crate) fn has_come() -> bool {
    came().is_some()
}

/// Makes this process ignore signals from now on: it works for its parent, which gets them too, and
/// ends with it.
pub(crate) fn leave_to_parent() {
    IS_LEFT_TO_PARENT.store(true, Ordering::SeqCst);
}

/// Returns how long the work may take after the signal.
fn time_to_work() -> Duration {
    if IS_ENDING.load(Ordering::SeqCst) {
        at_least(TIME_TO_END)
    } else if WATCHERS.load(Ordering::SeqCst) > 0 {
        at_least(TIME_TO_NOTICE)
    } else {
        Duration::ZERO
    }
}

/// Returns this time, or the longer one that a test asks for.
fn at_least(time: Duration) -> Duration {
    let patience = std::env::var(PATIENCE_ENV).ok().and_then(|seconds| seconds.parse().ok());
    time.max(Duration::from_secs(patience.unwrap_or_default()))
}

/// Prints one line and ends the process as if it had been killed. From now on another of the signals
/// `wanted` ends it at once.
fn end(exit: Exit, state: &'static str, wanted: &[i32]) -> ! {
    for &number in wanted {
        let at_once = Arc::new(AtomicBool::new(true));
        let _ = flag::register_conditional_shutdown(number, exit_of(number) as i32, at_once);
    }
    let (said, is_said) = mpsc::channel();
    // In a thread, because the work may hold standard error and wait for its reader.
    let speaker = thread::Builder::new().spawn(move || {
        progress::leave_bar();
        console::report_error(&format!("interrupted{state}"), None);
        let _ = said.send(());
    });
    if speaker.is_ok() {
        let _ = is_said.recv_timeout(at_least(TIME_TO_SPEAK));
    }
    low_level::exit(exit as i32);
}

fn remove(path: &Path) -> io::Result<()> {
    if !path.symlink_metadata()?.is_dir() {
        return std::fs::remove_file(path);
    }
    // Repeat, because the work may still add files.
    let is_removed = (1..REMOVALS).any(|_| std::fs::remove_dir_all(path).is_ok());
    if is_removed { Ok(()) } else { std::fs::remove_dir_all(path) }
}

/// A flag for work that ends itself after a signal. While one exists, the signals' thread gives the
/// work time to do so.
#[derive(Debug)]
pub(crate) struct Interrupt(());

impl Interrupt {
    /// Begins to poll. If a signal is already ending the process, this does not return, so that no
    /// new work begins.
    pub(crate) fn watch() -> Self {
        WATCHERS.fetch_add(1, Ordering::SeqCst);
        // The signals' thread counts the watchers under this lock, and ends the process under it.
        drop(unfinished());
        Self(())
    }

    /// Returns the exit code of the signal that arrived, if any.
    #[expect(clippy::unused_self, reason = "it is what gives the work the time to look")]
    pub(crate) fn exit(&self) -> Option<Exit> {
        came().inspect(|_| IS_ENDING.store(true, Ordering::SeqCst))
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        WATCHERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Watches for signals during work of the library that creates a file and reports its progress.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    interrupt: Option<Interrupt>,
    /// The path of the file until it is complete.
    partial: Option<PathBuf>,
    unfinished: Option<Unfinished>,
    stopped: Option<Exit>,
}

impl Watch {
    /// Begins to watch work that creates a file at `partial`. Without a file there is nothing to
    /// remove, and a signal ends the process.
    pub(crate) fn over(partial: Option<PathBuf>) -> Self {
        let interrupt = partial.as_ref().map(|_| Interrupt::watch());
        Self { interrupt, partial, ..Self::default() }
    }

    /// Checks for a signal when the work reports progress. The first call means that the file
    /// exists and is ours; after the last one, the work no longer polls.
    pub(crate) fn look(&mut self, is_last: bool) -> ControlFlow<()> {
        if let Some(partial) = self.partial.take() {
            self.unfinished = Some(Unfinished::new(partial));
        }
        self.stopped = self.interrupt.as_ref().and_then(Interrupt::exit);
        if is_last {
            self.interrupt = None;
        }
        if self.stopped.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Ends with the work. If a signal stopped it, or ended its wait for others, the error has `state` as
    /// its message and `remedy` as its hint.
    pub(crate) fn end<T, E>(
        self,
        outcome: Result<T, E>,
        state: &str,
        remedy: &str,
    ) -> failure::Result<Result<T, E>> {
        if outcome.is_ok() {
            last_step();
            return Ok(outcome);
        }
        let stopped = self.stopped.or_else(|| self.interrupt.as_ref().and_then(Interrupt::exit));
        match stopped {
            Some(exit) => Err(Failure::interrupted(exit, state).hint(remedy)),
            None => Ok(outcome),
        }
    }
}

/// Declares that the work is about to finish: its file is complete and gets its name. A signal now
/// comes too late, and the command ends as if there had been none.
pub(crate) fn last_step() {
    IS_ENDING.store(true, Ordering::SeqCst);
}

/// A file or a directory of ours that is not finished; a signal that ends the process removes it.
#[derive(Debug)]
pub(crate) struct Unfinished(PathBuf);

impl Unfinished {
    /// Creates a file and registers the path that `path_of` returns, until this is dropped. A
    /// signal arrives before both or after both, so it cannot leave a file behind.
    pub(crate) fn create<T, E>(
        make: impl FnOnce() -> Result<T, E>,
        path_of: impl FnOnce(&T) -> PathBuf,
    ) -> Result<(T, Self), E> {
        let mut unfinished = unfinished();
        let made = make()?;
        let path = path_of(&made);
        unfinished.push(path.clone());
        Ok((made, Self(path)))
    }

    /// Gives the complete file its name. A signal arrives before this and ends the process, or
    /// after it and removes nothing.
    pub(crate) fn finish(&self, give_name: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut unfinished = unfinished();
        give_name()?;
        unfinished.retain(|path| *path != self.0);
        Ok(())
    }

    /// Registers `path`, until this is dropped.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        unfinished().push(path.clone());
        Self(path)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut unfinished = unfinished();
        if let Some(at) = unfinished.iter().position(|path| *path == self.0) {
            unfinished.swap_remove(at);
        }
    }
}

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}
