//! `splitpoint lab replay`: traces of the kernel's caches through the hash tables of its versions.

pub(super) mod columns;
pub(super) mod input;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::ValueEnum;
use splitpoint_lab::replay::{
    Combination, KernelTable, Measuring, Replay, ReplayStudy, Shrink, TableReplay, TraceReplay,
    TreeReplay, name_attacks, recent_buffers, red_black, xarray,
};

use self::input::Input;
use super::super::list::FunctionName;
use super::super::saving::{self, Output};
use crate::chains;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::progress::{Phases, ProgressMode, Total};

/// Replay a trace of the kernel's caches through the hash tables of Linux, then and now
///
/// Reads what programs asked of the dentry, inode, page and buffer caches, and shows how many nodes
/// their lookups visit in the tables of Linux 2.2.5, 2.2.16, 2.4.0 and 6.x, beside an ideal hash. Old
/// functions hash addresses, which a trace does not have; a model of the allocators draws them from
/// seeds. A trace is text, one event a line, and may be compressed with zstd; docs/lab.md has its
/// format and how to record one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab replay usr.kct.zst
  splitpoint lab replay scripts.kct.zst --table dentry --era 2.2.5 --style lever
  splitpoint lab replay scripts.kct.zst --hash steiner-buffer --buckets 16384
  splitpoint lab replay usr.kct.zst --table inode --era 2.4.0 --memory 64M
  splitpoint lab replay scripts.kct.zst --combine all
  splitpoint lab replay scripts.kct.zst --shrink half:100000 --every 500000
  splitpoint lab replay --all traces --html then-and-now.html")]
pub(crate) struct Args {
    /// The traces; directories with --all
    #[arg(value_name = "TRACE", required_unless_present = "all")]
    traces: Vec<PathBuf>,

    /// Replay every trace (*.kct, *.kct.zst) of these directories [default: the current one], and
    /// answer whether today's Linux is fine
    #[arg(long)]
    all: bool,

    /// The table; repeat it for several
    #[arg(long, value_enum, value_name = "TABLE", default_value = "all")]
    table: Vec<TableName>,

    /// A kernel whose functions and sizes to use; repeat it for several [default: all]
    #[arg(long, value_name = "VERSION", value_parser = columns::era_names())]
    era: Vec<String>,

    /// A function instead of the kernels' own; repeat it for several
    #[arg(long, value_name = "NAME", value_parser = FunctionName, hide_possible_values = true)]
    hash: Vec<String>,

    /// Numbers of buckets instead of those of the kernels
    #[arg(long, value_name = "N", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    buckets: Vec<u64>,

    /// Memory of the machine, which decides how many buckets a kernel takes, such as 64M or 24G
    /// [default: 512M; for 6.x 24G]
    #[arg(long, value_name = "SIZE", value_parser = columns::parse_memory)]
    memory: Option<u64>,

    /// Replay all four tables as in a kernel of Lever's section 4: ref, A, B, C, D, or all of them
    #[arg(long, value_name = "KERNEL", value_parser = columns::combination_names(),
          conflicts_with_all = ["era", "hash", "buckets", "memory", "table"])]
    combine: Option<String>,

    /// How the dentry cache is pruned: none, to N dentries (lru:N), or all or half of what is unused
    /// after every K lookups (all:K, half:K)
    #[arg(long, value_name = "HOW", default_value = "none", value_parser = parse_shrink)]
    shrink: Shrink,

    /// Seeds of the addresses, from 1
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,

    /// Stop after N lookups of each table, and read the instrument then
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    at: Option<u64>,

    /// Read the instrument after every N lookups of each table
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,

    /// Answer whether today's Linux is fine: other sizes, awkward addresses, names made to collide
    #[arg(long, conflicts_with_all = ["at", "every", "combine"])]
    today: bool,

    /// How to print the result
    #[arg(long, value_enum, default_value_t, value_name = "STYLE")]
    style: Style,

    #[command(flatten)]
    output: Output,

    /// When to show progress
    #[arg(long, value_enum, default_value_t)]
    progress: ProgressMode,
}

/// A table, or all of them
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TableName {
    /// Names in directories
    Dentry,
    /// Inodes
    Inode,
    /// Pages of files
    Page,
    /// Blocks of devices
    Buffer,
    /// All four
    All,
}

impl TableName {
    fn tables(self) -> &'static [KernelTable] {
        match self {
            Self::Dentry => &[KernelTable::Dentry],
            Self::Inode => &[KernelTable::Inode],
            Self::Page => &[KernelTable::Page],
            Self::Buffer => &[KernelTable::Buffer],
            Self::All => &KernelTable::ALL,
        }
    }
}

/// How to print the result
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Style {
    /// Tables beside the ideal
    #[default]
    Full,
    /// The lines that Lever's patch for Linux 2.2 logged, for each table
    Lever,
}

/// Draws of the ideal hash.
const DRAWS: u64 = 10;
/// Most moments of a series.
const MOMENTS_MAX: u64 = 100_000;

fn parse_shrink(text: &str) -> Result<Shrink, String> {
    text.parse().map_err(|error: &str| error.to_owned())
}

/// Replays the traces.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    args.output.check()?;
    let inputs = if args.all { input::all_in(&args.traces)? } else { args.traces.clone() };
    let plan = columns::Plan::of(args)?;
    let phases = Mutex::new(Phases::new(args.progress, console));
    let mut study = saving::replay_study(args.seeds, DRAWS);
    for path in &inputs {
        study.traces.push(replay(args, &plan, path, &phases)?);
    }
    if args.asks_today() {
        tell(&phases, "attack", Total::Unknown, 0, 0);
        study.attacks = name_attacks().map_err(of_lab)?;
    }
    phases.lock().unwrap_or_else(PoisonError::into_inner).finish();
    match args.style {
        Style::Full => args.output.deliver(&study, console),
        Style::Lever => args.output.deliver_with(&study, console, || lever_text(&study)),
    }
}

impl Args {
    fn asks_today(&self) -> bool {
        let is_narrow = self.combine.is_some() || self.at.is_some() || self.every.is_some();
        self.today || self.all && !is_narrow
    }
}

fn tell(phases: &Mutex<Phases>, name: &'static str, total: Total, records: u64, bytes: u64) {
    phases.lock().unwrap_or_else(PoisonError::into_inner).tell(name, total, records, bytes);
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn of_lab(error: splitpoint_lab::Error) -> Failure {
    Failure::new(Exit::Usage, error.to_string())
}

/// Reads a trace and measures on it what was asked.
fn replay(
    args: &Args,
    plan: &columns::Plan,
    path: &Path,
    phases: &Mutex<Phases>,
) -> Result<TraceReplay> {
    let Input { streams, source } = input::read(path, args.shrink, |bytes, total, lines| {
        tell(phases, "read", Total::Bytes(total), lines, bytes);
    })?;
    check_series(args, &streams)?;
    let failed = |error| of_lab(error).within(format_args!("`{source}`"));
    let show = |name| move |done, total| tell(phases, name, Total::Rounds(total), done, 0);
    let at_tables = show("replay");
    let replay = Replay::new(&streams, measuring(args, &at_tables));
    let mut trace = replay.trace(&source, args.shrink);
    if let Some(combinations) = &plan.combinations {
        trace.combinations = replay.combinations(combinations).map_err(failed)?;
        return Ok(trace);
    }
    trace.tables = replay.tables(&plan.columns).map_err(failed)?;
    if plan.is_of_eras && args.at.is_none() {
        let trees = [red_black(&streams), xarray(&streams), recent_buffers(&streams)];
        let is_asked =
            |tree: &TreeReplay| tree.lookup_count > 0 && plan.tables.contains(&tree.table);
        trace.trees = trees.into_iter().filter(is_asked).collect();
    }
    if args.at.is_none() && args.style == Style::Full {
        let at_sizes = show("sizes");
        let replay = Replay::new(&streams, measuring(args, &at_sizes));
        trace.curves = replay.curves(&plan.functions).map_err(failed)?;
    }
    if args.all && args.asks_today() {
        trace.combinations = replay.combinations(&Combination::ALL).map_err(failed)?;
    }
    if args.asks_today() {
        let at_today = show("today");
        let replay = Replay::new(&streams, measuring(args, &at_today));
        trace.today = replay.today().map_err(failed)?;
        trace.superblocks = replay.superblocks().map_err(failed)?;
    }
    Ok(trace)
}

fn measuring<'a>(args: &Args, progress: &'a (dyn Fn(u64, u64) + Sync)) -> Measuring<'a> {
    let Args { seeds, at, every, .. } = *args;
    Measuring { seed_count: seeds, draw_count: DRAWS, at, every, progress }
}

/// Refuses a series of more readings than anybody can read.
fn check_series(args: &Args, streams: &splitpoint_lab::replay::Streams) -> Result<()> {
    let Some(every) = args.every else { return Ok(()) };
    let lookups = |table: &KernelTable| streams.counts(*table).lookup_count;
    let most = KernelTable::ALL.iter().map(lookups).max().unwrap_or(0);
    if most / every <= MOMENTS_MAX {
        return Ok(());
    }
    let message = format!("--every {every} gives {} readings, at most {MOMENTS_MAX}", most / every);
    Err(Failure::new(Exit::Usage, message)
        .hint(format!("give --every {} or more", most.div_ceil(MOMENTS_MAX))))
}

/// Returns the lines of Lever's patch for every table, under the names that it gave them.
fn lever_text(study: &ReplayStudy) -> String {
    let tables = study.traces.iter().flat_map(|trace| {
        let combined = trace.combinations.iter().flat_map(|it| &it.tables);
        trace.tables.iter().chain(combined)
    });
    tables.map(lever_lines).collect::<Vec<String>>().join("\n")
}

fn lever_lines(it: &TableReplay) -> String {
    let (title, noun, function) = match it.table {
        KernelTable::Dentry => ("Dentry", "dentries", "d_lookup"),
        KernelTable::Inode => ("Inode", "inodes", "find_inode"),
        KernelTable::Page => ("Page", "pages", "find_page"),
        KernelTable::Buffer => ("Buffer", "buffers", "find_buffer"),
    };
    let reading = &it.reading;
    let per = |part: u64, whole: u64, of: u128| u128::from(part) * of / u128::from(whole.max(1));
    let hit_rate = per(reading.hit_count, reading.lookup_count, 100);
    let iterations = per(reading.skipped, reading.lookup_count, 1000);
    let lookups = format!("{function}() iterations/lookup: {iterations}/1000\n");
    format!(
        "{title} cache total lookups: {} (hit rate: {hit_rate}%)\n{}",
        reading.lookup_count,
        chains::lever_text_of(&it.rows, [noun, noun], &lookups)
    )
}
