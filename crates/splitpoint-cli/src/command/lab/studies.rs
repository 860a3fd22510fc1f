//! Studies of kernels, of papers and of the programs of 1991, and counts of parts: the command of the Python
//! package does without them, since its wheel would have 3.6 MB instead of 3.0. Python has `lab.Partial`.

mod classics;
mod golden;
mod layout;
mod merge;
mod nfs;
mod paper;
mod part;
mod partial;
mod replay;
mod tables;
mod trace;

use crate::console::Console;
use crate::failure::Result;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    Replay(Box<replay::Args>),
    Golden(golden::Args),
    Tables(tables::Args),
    Layout(layout::Args),
    Nfs(nfs::Args),
    Trace(trace::Args),
    Paper(paper::Args),
    Classics(Box<classics::Args>),
    Partial(Box<partial::Args>),
    Merge(merge::Args),
}

/// Runs a study.
pub(super) fn run(command: &Command, console: Console) -> Result<()> {
    match command {
        Command::Replay(args) => replay::run(args, console),
        Command::Golden(args) => golden::run(args, console),
        Command::Tables(args) => tables::run(args, console),
        Command::Layout(args) => layout::run(args, console),
        Command::Nfs(args) => nfs::run(args, console),
        Command::Trace(args) => trace::run(args, console),
        Command::Paper(args) => paper::run(args, console),
        Command::Classics(args) => classics::run(args, console),
        Command::Partial(args) => partial::run(args, console),
        Command::Merge(args) => merge::run(args, console),
    }
}
