//! `splitpoint lab paper`: published studies of hash tables, number by number.

mod seltzer_yigit;

use std::path::PathBuf;

use clap::Subcommand;
use splitpoint_lab::handles::{BUCKETS, HandleReport};
use splitpoint_lab::paper::{self, PaperReport, Runs};
use splitpoint_lab::replay::{Measuring, NodeLayout, Shrink, Streams, walk};

use super::super::saving::PageOutput;
use super::replay::input;
use super::{layout, nfs};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::progress::{Phases, ProgressMode, Total};

/// Put the numbers of a published study beside ours
///
/// Each number is marked exact, same shape, did not hold here, or not reproducible, with the reason;
/// mistakes in the text are listed with the arithmetic. Nothing is tuned to agree.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab paper seltzer-yigit --html 1991.html
  splitpoint lab paper lever --trace scripts.kct.zst --html lever.html
  splitpoint lab paper dumazet --time
  splitpoint lab paper mewburn --handles handles.txt.zst
  splitpoint lab paper torvalds --json")]
pub(crate) struct Args {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Debug, Subcommand)]
enum Paper {
    SeltzerYigit(Box<seltzer_yigit::Args>),
    Lever(LeverArgs),
    Dumazet(DumazetArgs),
    Mewburn(MewburnArgs),
    Torvalds(TorvaldsArgs),
}

/// Lever 2000: the hash tables of Linux 2.2.5
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab paper lever
  splitpoint lab paper lever --trace scripts.kct.zst --seeds 5")]
struct LeverArgs {
    /// Replay this trace on the tables of the paper
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Seeds of the addresses, from 1
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,

    /// When to show progress
    #[arg(long, value_enum, default_value_t)]
    progress: ProgressMode,

    #[command(flatten)]
    output: PageOutput,
}

/// Dumazet 2005: one cache line instead of two
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab paper dumazet
  splitpoint lab paper dumazet --time")]
struct DumazetArgs {
    /// Measure lookups with both layouts on this machine
    #[arg(long)]
    time: bool,

    #[command(flatten)]
    output: PageOutput,
}

/// Mewburn 2001: FNV for NFS file handles
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab paper mewburn
  splitpoint lab paper mewburn --handles handles.txt.zst")]
struct MewburnArgs {
    /// Handles, one a line: inode and, if known, generation; may be zstd
    #[arg(long, value_name = "FILE")]
    handles: Option<PathBuf>,

    #[command(flatten)]
    output: PageOutput,
}

/// Bacik and Torvalds 2014: the hash of names
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab paper torvalds
  splitpoint lab paper torvalds --html names.html")]
struct TorvaldsArgs {
    #[command(flatten)]
    output: PageOutput,
}

/// Draws of the ideal hash.
const DRAWS: u64 = 10;
/// Lookups between two times that the dentry cache is shrunk; the paper does not say how often it was.
const SHRINK: Shrink = Shrink::Half(100_000);

/// Prints the paper's numbers beside ours.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let deliver = |output: &PageOutput, report: &PaperReport| output.deliver(report, console);
    match &args.paper {
        Paper::SeltzerYigit(args) => seltzer_yigit::run(args, console),
        Paper::Lever(args) => {
            args.output.check()?;
            deliver(&args.output, &lever(args, console)?)
        }
        Paper::Dumazet(args) => {
            args.output.check()?;
            let times = if args.time { times() } else { Vec::new() };
            deliver(&args.output, &paper::dumazet(&times))
        }
        Paper::Mewburn(args) => {
            args.output.check()?;
            let report = args.handles.as_ref().map(|path| {
                let handles = nfs::read(path)?;
                HandleReport::new(path.display().to_string(), &handles, BUCKETS, 1)
                    .map_err(|error| Failure::new(Exit::Usage, error.to_string()))
            });
            deliver(&args.output, &paper::mewburn(report.transpose()?.as_ref()))
        }
        Paper::Torvalds(args) => {
            args.output.check()?;
            deliver(&args.output, &paper::torvalds())
        }
    }
}

fn times() -> Vec<walk::WalkTime> {
    let layouts = ["dentry-2.6.13", "dentry-2.6.14"];
    let layouts: Vec<NodeLayout> =
        layouts.iter().filter_map(|name| NodeLayout::by_name(name)).copied().collect();
    let memories = layout::memories(None, layouts.len());
    memories.into_iter().flat_map(|bytes| walk::time(&layouts, bytes, 16)).collect()
}

fn lever(args: &LeverArgs, console: Console) -> Result<PaperReport> {
    let mut phases = Phases::new(args.progress, console);
    let mut read = |shrink| -> Result<Option<Streams>> {
        let Some(path) = &args.trace else { return Ok(None) };
        let input = input::read(path, shrink, |bytes, total, lines| {
            phases.tell("read", Total::Bytes(total), lines, bytes);
        })?;
        Ok(Some(input.streams))
    };
    let (streams, shrunk) = (read(Shrink::None)?, read(SHRINK)?);
    phases.finish();
    let runs = streams.as_ref().map(|streams| Runs {
        streams,
        shrunk: shrunk.as_ref(),
        measuring: Measuring {
            seed_count: args.seeds,
            draw_count: DRAWS,
            at: None,
            every: None,
            progress: &|_, _| {},
        },
    });
    paper::lever(runs).map_err(|error| Failure::new(Exit::Usage, error.to_string()))
}
