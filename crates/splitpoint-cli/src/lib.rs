//! The `splitpoint` command, as a library for its program and its fuzzer: no API of its own.

#![forbid(unsafe_code)]

mod args;
mod bug;
mod bytes;
mod chains;
mod command;
mod console;
mod failure;
mod files;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod interrupt;
mod look;
mod manual;
mod measure;
mod number;
mod old_report;
mod progress;
mod report;
mod store;
mod verify;
mod words;

use std::process::ExitCode;

use clap::Parser;

/// Runs the command with the arguments of this process.
pub fn main() -> ExitCode {
    bug::report_on_one_line();
    let cli = args::Cli::parse();
    interrupt::end_on_signals();
    let console = console::Console::new(cli.quiet);
    match cli.command.run(console) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::report_failure(&failure);
            ExitCode::from(failure.exit() as u8)
        }
    }
}
