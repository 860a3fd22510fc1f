//! The `splitpoint` command.

#![forbid(unsafe_code)]

mod args;
mod bug;
mod bytes;
mod command;
mod console;
mod failure;
mod format;
mod interrupt;
mod manual;
mod measure;
mod number;
mod progress;
mod report;
mod store;
mod words;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    bug::report_on_one_line();
    let cli = args::Cli::parse();
    let console = console::Console::new(cli.quiet);
    match cli.command.run(console) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::report_failure(&failure);
            ExitCode::from(failure.exit() as u8)
        }
    }
}
