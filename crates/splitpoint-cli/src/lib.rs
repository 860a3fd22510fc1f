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
mod loss;
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
    interrupt::end_on_signals();
    match run() {
        Ok(exit) => exit,
        Err(failure) => {
            console::report_failure(&failure);
            ExitCode::from(failure.exit() as u8)
        }
    }
}

fn run() -> failure::Result<ExitCode> {
    match args::Cli::try_parse() {
        Ok(cli) => {
            cli.command.run(console::Console::new(cli.quiet))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(usage) => {
            console::print_usage(&usage)?;
            let exit = u8::try_from(usage.exit_code()).unwrap_or(failure::Exit::Usage as u8);
            Ok(ExitCode::from(exit))
        }
    }
}
