//! Words for the person at the terminal.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};

thread_local! {
    /// Where the words of this thread go, and those of the programs that it runs, if not to the terminal.
    static LOG: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// Writes a line to stdout, at once: the programs that are run write there too.
///
/// Silent in tests, which look at what is returned: their output is read by `run_tests`.
pub(crate) fn say(line: &str) {
    let is_logged =
        LOG.with_borrow_mut(|log| log.as_mut().map(|log| writeln!(log, "{line}")).is_some());
    if cfg!(test) || is_logged {
        return;
    }
    let mut out = io::stdout().lock();
    // If nobody reads, there is nobody to be told.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Writes a line to stderr.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Lets this thread write into a file from now on, or to the terminal again.
pub(crate) fn write_into(log: Option<File>) {
    LOG.set(log);
}

/// Lets a program that is not started yet write where this thread does.
pub(crate) fn share_with(command: &mut Command) {
    LOG.with_borrow(|log| {
        let copy = || log.as_ref().and_then(|log| log.try_clone().ok());
        let copies = copy().zip(copy());
        if let Some((out, error)) = copies {
            command.stdout(Stdio::from(out)).stderr(Stdio::from(error));
        }
    });
}
