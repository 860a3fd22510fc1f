//! `splitpoint stat`: counts, sizes and the chain histogram of a store.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use splitpoint::stats::{Lookups, Stats};
use splitpoint::{Db, Options};

use crate::bytes::Notation;
use crate::chains::{self, Form};
use crate::command::shared::{Turn, try_for_each_key};
use crate::command::watch;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::files::open_stream;
use crate::loss;
use crate::number::{grouped, percent};
use crate::old_report::OldReport;
use crate::report::StatReport;
use crate::store;

/// Print counts, sizes and the chain histogram of a store
///
/// The histogram counts buckets by their number of keys, beside the counts that an ideal hash
/// function would give in a table of this shape. A hash function that does not suit the keys thus
/// shows at a glance.
///
/// With --lookups, looks up keys first and counts what that costs: how many records' keys a lookup
/// compares and how many cache lines of the index it reads.
///
/// With --watch alone, looks at a sample of 2,048 buckets again and again, while any process uses the
/// store, and prints what its chains cost beside the ideal: a line for each interval, or with --style
/// the lines of Lever or vmstat, or with --json an object. If programs count their lookups
/// (`Options::instrument`), it also shows what the lookups of all processes have cost since the last
/// look. The store is open only during a look, and nobody waits for it.
///
/// The live share is the share of the bytes of records; compaction keeps it at about 78 %, and at two
/// thirds after many deletes. Under `segments`, `waiting` counts segments that compaction has emptied.
/// They become free with the next checkpoint, or when the writing process has dropped its values, scans
/// and backups. In JSON, `write_amplification` (bytes written for each byte of log) and `held_up_ms` (how
/// long the oldest pin has held back space) are figures of this process, and null if there are none.
///
/// If another process writes to the store, lists the readers under `readers`: the place of each in the
/// table of the file, its process, how long it has been there, and whether a value or a scan of it keeps
/// space from being used again. Readers that may not write to the file have no place, and are not listed.
///
/// For an old file, prints its parameters, its buckets by their number of records, and the same
/// histogram of its keys.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint stat words.spt
  splitpoint stat words.spt --json | jq .chains.longest
  splitpoint stat words.spt --style vmstat
  splitpoint stat words.spt --watch 10
  splitpoint stat words.spt --lookups asked-for.txt --style lever
  tail -f asked-for.txt | splitpoint stat words.spt --lookups - --watch 5")]
pub(crate) struct Args {
    /// The store, or an old file
    file: PathBuf,

    /// How to print the histogram
    #[arg(long, value_enum, default_value_t, value_name = "STYLE", conflicts_with = "json")]
    style: Form,

    /// Look up the keys of a file first, one per line, and show what the lookups cost; - for
    /// standard input
    #[arg(long, value_name = "KEYS")]
    lookups: Option<PathBuf>,

    /// Print a line every so many seconds: about the lookups while keys are looked up, or without
    /// --lookups about a store in use, until Ctrl-C
    #[arg(long, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,

    /// Print all of it as a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    turn: Turn,
}

/// Prints counts, sizes and the chain histogram.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let name = args.file.display().to_string();
    if let Some(keys) = &args.lookups {
        if args.watch.is_some() && args.json {
            return Err(Failure::new(Exit::Usage, "--lookups with --watch prints no JSON")
                .hint("leave out --watch, or --lookups, or --json"));
        }
        let db = store::open_store_with(
            &args.file,
            &Options::new().instrument(true),
            args.turn.wait_max(),
            console,
        )?;
        look_up(&db, args, keys)?;
        return print(args, name, &stats_of(&db, &args.file)?);
    }
    if let Some(seconds) = args.watch {
        let form = if args.json { watch::Form::Json } else { watch::Form::Text(args.style) };
        return watch::watch(&args.file, Duration::from_secs(seconds), form, console);
    }
    let opened = store::open(&args.file, args.turn.wait_max(), console)?;
    loss::warn_at_once(&opened, console);
    let failed = |error| opened.failed(&error);
    let stats = opened.stats().map_err(failed)?;
    let Some(file) = opened.as_old() else { return print(args, name, &stats) };
    let survey = file.survey().map_err(failed)?;
    let report = OldReport::new(name.clone(), file, survey, &stats);
    match args.style {
        _ if args.json => console::print_json(&report),
        Form::Full => console::print_styled(&report.to_text()),
        Form::Lever | Form::Vmstat => print(args, name, &stats),
    }
}

fn stats_of(db: &Db, path: &Path) -> Result<Stats> {
    db.stats().map_err(|error| Failure::using(path, &error))
}

/// Prints what is known of a store.
fn print(args: &Args, name: String, stats: &Stats) -> Result<()> {
    if args.json {
        return console::print_json(&StatReport::new(name, stats));
    }
    let rows = &stats.chains.rows;
    console::print_styled(&match (args.style, &stats.lookups) {
        (Form::Full, _) => StatReport::new(name, stats).to_text(),
        (Form::Lever, Some(lookups)) => chains::lever_text_with(rows, lookups),
        (Form::Lever, None) => chains::lever_text(rows),
        (Form::Vmstat, _) => chains::vmstat_text(&name, rows),
    })
}

/// Looks up every key of a file, or of standard input.
fn look_up(db: &Db, args: &Args, keys: &Path) -> Result<()> {
    let mut watch = args.watch.map(|seconds| Watch::every(Duration::from_secs(seconds)));
    let work = |keys: &[Vec<u8>]| {
        for key in keys {
            db.contains(key).map_err(|error| Failure::using(&args.file, &error))?;
        }
        match &mut watch {
            Some(watch) => watch.look(db),
            None => Ok(()),
        }
    };
    let format = (b'\n', Notation::with_hex(false));
    if keys == Path::new("-") {
        return try_for_each_key(io::stdin(), format, "standard input", work);
    }
    let file = open_stream(keys)?;
    try_for_each_key(file, format, &format!("`{}`", keys.display()), work)
}

/// What is printed while keys are looked up: a line for each interval.
struct Watch {
    interval: Duration,
    last: Instant,
    before: Lookups,
    has_heading: bool,
}

impl Watch {
    fn every(interval: Duration) -> Self {
        Self { interval, last: Instant::now(), before: Lookups::default(), has_heading: false }
    }

    /// Prints what has been looked up since the last line, if it is time.
    fn look(&mut self, db: &Db) -> Result<()> {
        if self.last.elapsed() < self.interval {
            return Ok(());
        }
        let now = db.lookups().unwrap_or_default();
        let since = now.since(&self.before);
        let mut out = console::data();
        let mut heading = String::new();
        if !self.has_heading {
            let [lookups, hits, compared, lines] = ["lookups", "hits, %", "compared", "lines"];
            heading = format!("{lookups:>14} {hits:>7} {compared:>9} {lines:>7}\n");
            self.has_heading = true;
        }
        let line = format!(
            "{heading}{:>14} {:>7.1} {:>9.3} {:>7.3}\n",
            grouped(since.lookup_count),
            percent(since.hit_count, since.lookup_count),
            since.compared_per_lookup(),
            since.lines_per_lookup()
        );
        out.write_all(line.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| Failure::output(&error))?;
        (self.before, self.last) = (now, Instant::now());
        Ok(())
    }
}
