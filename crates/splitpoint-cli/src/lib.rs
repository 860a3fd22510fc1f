//! The `splitpoint` command, as a library for its program and its fuzzer. It has no public API.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "studies"),
    expect(
        dead_code,
        reason = "what only the studies of the lab call; all of it is checked with them"
    )
)]

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
mod itself;
mod look;
mod loss;
mod manual;
mod measure;
mod new_file;
mod number;
mod old_report;
mod progress;
mod report;
mod shell;
mod store;
mod verify;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

/// Runs the command with the arguments of this process.
pub fn main() -> ExitCode {
    ExitCode::from(main_with(std::env::args_os()))
}

/// Runs the command with `args`, of which the first is the name of the program, and returns the
/// exit code. It installs handlers for this process's signals.
pub fn main_with(args: impl IntoIterator<Item = OsString>) -> u8 {
    bug::report_on_one_line();
    interrupt::end_on_signals();
    run(args).unwrap_or_else(|failure| {
        console::report_failure(&failure);
        failure.exit() as u8
    })
}

/// The same, in a process of another program, which runs this one by the words of `program` and its
/// arguments behind them.
pub fn main_of_another(program: Vec<OsString>, args: impl IntoIterator<Item = OsString>) -> u8 {
    itself::is_run_by(program);
    main_with(args)
}

fn run(args: impl IntoIterator<Item = OsString>) -> failure::Result<u8> {
    splitpoint_legacy::register()
        .map_err(|error| failure::Failure::new(failure::Exit::Bug, error.to_string()))?;
    match args::Cli::try_parse_from(args) {
        Ok(cli) => {
            cli.command.run(console::Console::new(cli.quiet))?;
            Ok(0)
        }
        Err(usage) => {
            console::print_usage(&usage)?;
            Ok(u8::try_from(usage.exit_code()).unwrap_or(failure::Exit::Usage as u8))
        }
    }
}
