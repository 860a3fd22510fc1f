//! Words for the person at the terminal.

use std::io::{self, Write as _};

/// Writes a line to stdout, at once: the programs that are run write there too.
///
/// Silent in tests, which look at what is returned: their output is read by `run_tests`.
pub(crate) fn say(line: &str) {
    if cfg!(test) {
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
