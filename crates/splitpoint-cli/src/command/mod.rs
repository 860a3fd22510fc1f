//! The commands, one file each.

mod backup;
mod bench;
mod check;
mod compact;
mod completions;
mod convert;
mod count;
mod create;
mod delete;
mod demo;
mod dump;
mod duplicates;
mod exists;
mod get;
mod identify;
mod lab;
mod list;
mod load;
mod man;
mod put;
mod rehash;
mod repair;
mod run;
mod salvage;
mod shared;
mod stat;
mod target;
mod txn;
mod watch;

use clap::Subcommand;

use crate::console::Console;
use crate::failure::Result;

/// The command to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(create::Args),
    Put(put::Args),
    Get(get::Args),
    Exists(exists::Args),
    Delete(delete::Args),
    Txn(txn::Args),
    Count(count::Args),
    List(list::Args),
    Load(load::Args),
    Dump(dump::Args),
    Stat(stat::Args),
    Check(check::Args),
    Compact(compact::Args),
    Backup(backup::Args),
    Repair(repair::Args),
    Rehash(rehash::Args),
    Identify(identify::Args),
    Convert(convert::Args),
    Salvage(salvage::Args),
    Bench(bench::Args),
    Demo(demo::Args),
    Lab(lab::Args),
    Run(run::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(&self, console: Console) -> Result<()> {
        match self {
            Self::Create(args) => create::run(args, console),
            Self::Put(args) => put::run(args, console),
            Self::Get(args) => get::run(args, console),
            Self::Exists(args) => exists::run(args, console),
            Self::Delete(args) => delete::run(args, console),
            Self::Txn(args) => txn::run(args, console),
            Self::Count(args) => count::run(args, console),
            Self::List(args) => list::run(args, console),
            Self::Load(args) => load::run(args, console),
            Self::Dump(args) => dump::run(args, console),
            Self::Stat(args) => stat::run(args, console),
            Self::Check(args) => check::run(args, console),
            Self::Compact(args) => compact::run(args, console),
            Self::Backup(args) => backup::run(args, console),
            Self::Repair(args) => repair::run(args, console),
            Self::Rehash(args) => rehash::run(args, console),
            Self::Identify(args) => identify::run(args, console),
            Self::Convert(args) => convert::run(args, console),
            Self::Salvage(args) => salvage::run(args, console),
            Self::Bench(args) => bench::run(args, console),
            Self::Demo(args) => demo::run(args, console),
            Self::Lab(args) => lab::run(args, console),
            Self::Run(args) => run::run(args),
            Self::Completions(args) => completions::run(args),
            Self::Man(args) => man::run(args, console),
        }
    }
}
