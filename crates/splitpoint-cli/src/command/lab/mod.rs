//! `splitpoint lab`: hash functions on the user's own keys, against the ideal.

mod avalanche;
mod compare;
mod gate;
mod hash;
mod keys;
mod list;
mod live;
mod measuring;
mod own;
mod recommend;
mod report;
mod saving;
mod slots;
#[cfg(feature = "studies")]
mod studies;
mod sweep;
mod table;
mod watching;
#[cfg(not(feature = "studies"))]
mod without_studies;

use std::path::PathBuf;

use clap::Subcommand;

use crate::console::Console;
use crate::failure::Result;

/// What to try first.
macro_rules! first_examples {
    () => {
        "\
Examples:
  splitpoint lab hash /usr/share/dict/words        # every function, best first
  splitpoint lab table words.txt --hash fnv1a-32   # one function, in depth
  splitpoint lab avalanche ids --hash sdbm         # flip bits of the keys
  splitpoint lab report words.json --html page.html  # render a saved study
  splitpoint lab sweep words.txt                   # at many table sizes
  splitpoint lab recommend words.txt               # which one to use
  splitpoint lab gate words.txt --hash fnv1a-32    # fail if it does not fit
  splitpoint lab list                              # the functions
  splitpoint lab slots keys.txt                    # Redis Cluster's slots
  splitpoint lab live                              # tables of this kernel"
    };
}

/// What to try, of the commands that there are.
const EXAMPLES: &str = if cfg!(feature = "studies") {
    concat!(
        first_examples!(),
        "
  splitpoint lab replay usr.kct.zst                # a kernel's caches replayed
  splitpoint lab golden                            # check published figures
  splitpoint lab layout                            # cache lines of chains
  splitpoint lab classics words.txt                # dbm to db 1.85, as in 1991
  splitpoint lab merge part-*.splp                 # counts of parts, together"
    )
} else {
    concat!(
        first_examples!(),
        "

This is the command of the Python package. It lacks replay, golden, tables,
layout, nfs, trace, paper, classics, partial and merge. For the whole command,
run this in the repository:
  cargo install --locked --path crates/splitpoint-cli
In a virtual environment, call it as ~/.cargo/bin/splitpoint"
    )
};

/// Measure hash functions on your own keys against the ideal
///
/// Most commands take a file of keys, by default one per line, and show how a hash function spreads
/// them over a table, beside what an ideal hash would do.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The command to run
    #[command(subcommand)]
    command: Box<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Hash(hash::Args),
    Table(table::Args),
    Avalanche(avalanche::Args),
    Report(report::Args),
    Sweep(sweep::Args),
    Compare(compare::Args),
    Recommend(recommend::Args),
    Gate(Box<gate::Args>),
    List(list::Args),
    Slots(slots::Args),
    Live(live::Args),
    #[cfg(feature = "studies")]
    #[command(flatten)]
    Study(studies::Command),
    #[cfg(not(feature = "studies"))]
    #[command(flatten)]
    Study(without_studies::Command),
    /// Hash keys by a function of a library: what the other commands call this program for
    // clap suggests hidden commands too, so the name is far from what a user may type.
    #[command(hide = true, name = "__library")]
    HashWorker(WorkerArgs),
}

/// The function of a library.
#[derive(Debug, clap::Args)]
struct WorkerArgs {
    /// The library
    file: PathBuf,
    /// The function
    symbol: String,
}

/// Runs a command of the lab.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    match &*args.command {
        Command::Hash(args) => hash::run(args, console),
        Command::Table(args) => table::run(args, console),
        Command::Avalanche(args) => avalanche::run(args, console),
        Command::Report(args) => report::run(args, console),
        Command::Sweep(args) => sweep::run(args, console),
        Command::Compare(args) => compare::run(args, console),
        Command::Recommend(args) => recommend::run(args, console),
        Command::Gate(args) => gate::run(args, console),
        Command::List(args) => list::run(args),
        Command::Slots(args) => slots::run(args, console),
        Command::Live(args) => live::run(args, console),
        #[cfg(feature = "studies")]
        Command::Study(command) => studies::run(command, console),
        #[cfg(not(feature = "studies"))]
        Command::Study(command) => Err(without_studies::refused(&command.shown())),
        Command::HashWorker(args) => own::worker(&args.file, &args.symbol),
    }
}
