//! The streams: results go to standard output, messages to standard error.

use std::error::Error;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use anstyle::{AnsiColor, Style};

use crate::failure::Failure;

/// Style of `error:`.
const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Style of `warning:`.
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Style of `hint:`.
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// Where a command prints its messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    is_quiet: bool,
}

impl Console {
    /// Makes a console; a quiet one prints only errors.
    pub(crate) fn new(is_quiet: bool) -> Self {
        Self { is_quiet }
    }

    /// Returns whether to print only errors.
    pub(crate) fn is_quiet(self) -> bool {
        self.is_quiet
    }

    /// Prints a note on what the command did.
    pub(crate) fn note(self, message: impl fmt::Display) {
        if !self.is_quiet {
            // A closed standard error must not stop the work.
            let _ = writeln!(anstream::stderr(), "splitpoint: {message}");
        }
    }

    /// Prints a warning about a result that is not an error.
    pub(crate) fn warn(self, message: impl fmt::Display) {
        self.note(format_args!("{WARNING}warning:{WARNING:#} {message}"));
    }
}

/// Prints why a command failed on one line, and what to do about it on another.
pub(crate) fn report_failure(failure: &Failure) {
    if let Some(message) = failure.message() {
        report_error(message, failure.remedy());
    }
}

/// Writes the two lines of an error.
pub(crate) fn report_error(message: &str, hint: Option<&str>) {
    let mut stderr = anstream::stderr().lock();
    // Keep the message on one line: a path or a key in it may hold a newline.
    let message = message.replace('\n', "\\n");
    let _ = writeln!(stderr, "splitpoint: {ERROR}error:{ERROR:#} {message}");
    if let Some(hint) = hint {
        let _ = writeln!(stderr, "{HINT}hint:{HINT:#} {hint}");
    }
}

/// Returns standard output for data, without any conversion.
pub(crate) fn data() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 << 10, io::stdout().lock())
}

/// Prints what the parser of arguments answers: help to standard output, a mistake to standard
/// error.
pub(crate) fn print_usage(usage: &clap::Error) -> Result<(), Failure> {
    if usage.use_stderr() {
        // A closed standard error must not hide the exit code.
        let _ = anstream::stderr().write_all(mistake_in_words(usage).as_bytes());
        return Ok(());
    }
    let printed = usage.print().and_then(|()| io::stdout().flush());
    printed.map_err(|error| Failure::output(&error))
}

/// Returns what the parser says of a mistake, with what a number should be in place of what a function of
/// Rust found wrong with it.
fn mistake_in_words(usage: &clap::Error) -> String {
    let text = usage.render().ansi().to_string();
    let Some(source) = usage.source() else { return text };
    let Some(words) = number_in_words(source) else { return text };
    text.replacen(&source.to_string(), &words, 1)
}

/// Returns what was expected where an argument is not the number that it should be.
fn number_in_words(source: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = source.downcast_ref::<ParseIntError>() {
        let words = match error.kind() {
            IntErrorKind::PosOverflow => "the number is too large",
            IntErrorKind::Zero => "expected at least 1",
            _ => "expected a whole number, not negative",
        };
        return Some(words.to_string());
    }
    if source.is::<ParseFloatError>() {
        return Some("expected a number".to_string());
    }
    // Of `RangedU64ValueParser`: `0 is not in 1..18446744073709551615`.
    let text = source.to_string();
    let (_, range) = text.split_once(" is not in ")?;
    let (first, last) = range.split_once("..")?;
    if last == u64::MAX.to_string() {
        return Some(format!("expected at least {first}"));
    }
    Some(format!("expected {first} to {}", last.strip_prefix('=')?))
}

/// Returns whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Writes a styled text to standard output; without colors where it is no terminal or `NO_COLOR`
/// asks so.
pub(crate) fn print_styled(text: &str) -> Result<(), Failure> {
    let mut stdout = anstream::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::output(&error))
}

/// Writes one value as a line of JSON to standard output.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let mut out = data();
    serde_json::to_writer(&mut out, value)
        .map_err(io::Error::from)
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}
