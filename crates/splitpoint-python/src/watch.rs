//! Long work of the library: the user's function gets its progress, and Ctrl-C ends it.
//!
//! The work runs in a thread of its own, because it holds locks of the library: a signal handler, or
//! the user's function, may change or close the table.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use splitpoint::{Error, Result};

use crate::handle::Opened;

/// Time between two looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// What the work tells its progress.
pub(crate) struct Watch<'a> {
    progress: Sender<(u64, u64)>,
    is_stopped: &'a AtomicBool,
}

impl Watch<'_> {
    /// Notes the bytes done, and those of all; `Break` if the work is to end.
    pub(crate) fn call(&self, done: u64, all: u64) -> ControlFlow<()> {
        // Nobody listens any more if the work is to end.
        let _ = self.progress.send((done, all));
        if self.is_stopped.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Runs `work`, calls `progress` with what it notes, and looks for signals meanwhile.
///
/// # Errors
///
/// The exception of `progress` or of a signal handler, which ends the work; that of an error of the
/// work, or of the thread, if the system gives none.
pub(crate) fn run<R: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    opened: &Opened,
    work: impl FnOnce(Watch<'_>) -> Result<R> + Send,
) -> PyResult<R> {
    let is_stopped = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    let is_stopped = &is_stopped;
    let watch = Watch { progress: sender, is_stopped };
    let (made, stopped) = py.detach(move || {
        thread::scope(|scope| {
            let worker = match thread::Builder::new().spawn_scoped(scope, move || work(watch)) {
                Ok(worker) => worker,
                Err(source) => {
                    let (action, path) = ("start a thread for", opened.path().to_path_buf());
                    return (Err(Error::Io { action, path, source }), None);
                }
            };
            let mut stopped = None;
            loop {
                let noted = match receiver.recv_timeout(LOOK) {
                    Ok(noted) => Some(noted),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                if stopped.is_none() {
                    stopped = Python::attach(|py| look(py, progress, noted)).err();
                    is_stopped.store(stopped.is_some(), Ordering::Relaxed);
                }
            }
            (worker.join().unwrap_or_else(|panic| resume_unwind(panic)), stopped)
        })
    });
    match (made, stopped) {
        (_, Some(stopped)) => Err(stopped),
        (Ok(made), None) => Ok(made),
        (Err(error), None) => Err(opened.raise(py, &error)),
    }
}

fn look(py: Python<'_>, progress: Option<&Py<PyAny>>, noted: Option<(u64, u64)>) -> PyResult<()> {
    py.check_signals()?;
    if let (Some(progress), Some(noted)) = (progress, noted) {
        progress.call1(py, noted)?;
    }
    Ok(())
}
