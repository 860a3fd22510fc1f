//! A table in use: what `stat --watch` and `lab live` see of it, look by look.
//!
//! The table is open only during a look, so the name leads to whatever has it now. What has become of it
//! since the look before is said in a sentence, once.

use std::fmt::Write as _;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use splitpoint::stats::{Lookups, SharedLookups};
use splitpoint::{Db, ErrorKind, Recovery};
use splitpoint_lab::live_store::{LiveLookups, LiveStore};
use splitpoint_lab::report::HOW_TO_COUNT;

use crate::chains;
use crate::console::{self, Console};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::number::{counted, float, grouped};
use crate::store::{self, Opened};

/// Buckets of a look.
const BUCKET_COUNT: u64 = 2048;

/// How a look is printed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// As text: a line for each look, or the lines of another program.
    Text(chains::Form),
    /// As a JSON object.
    Json,
}

/// Looks at the table at `path` every `interval` until a signal ends it, and prints what it sees.
pub(crate) fn watch(path: &Path, interval: Duration, form: Form, console: Console) -> Result<()> {
    let interrupt = Interrupt::watch();
    let mut looker = Looker::new(path, console)?;
    let mut printer = Printer { form, is_counting: None };
    loop {
        let begun = Instant::now();
        if let Some(live) = looker.look()? {
            printer.print(&live)?;
        }
        wait(&interrupt, begun, interval)?;
    }
}

/// Looks twice, and returns what the second look has seen, with the lookups in between.
pub(crate) fn look_once(path: &Path, interval: Duration, console: Console) -> Result<LiveStore> {
    let interrupt = Interrupt::watch();
    let mut looker = Looker::new(path, console)?;
    let mut looks = 0;
    loop {
        let begun = Instant::now();
        if let Some(live) = looker.look()? {
            looks += 1;
            // Where nobody counts there is nothing to wait for.
            if looks == 2 || !live.is_counting {
                return Ok(live);
            }
        }
        wait(&interrupt, begun, interval)?;
    }
}

/// Waits until an interval is over, or fails if a signal has come.
fn wait(interrupt: &Interrupt, begun: Instant, interval: Duration) -> Result<()> {
    loop {
        if let Some(exit) = interrupt.exit() {
            return Err(Failure::silent(exit));
        }
        let left = interval.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// What looks at a table, and what it has seen last.
struct Looker<'a> {
    path: &'a Path,
    console: Console,
    look_count: u64,
    before: Option<Before>,
    /// A file whose index had to be rebuilt to look at it: that takes long, and is not done again.
    rebuilt: Option<[u64; 4]>,
    /// The sentence that was said last, and still holds.
    said: String,
}

/// What the look before has seen.
struct Before {
    at: Instant,
    /// Device and number of the file.
    file: Option<(u64, u64)>,
    lookups: Option<SharedLookups>,
    writer: Option<&'static str>,
    bucket_count: u64,
    is_counting: bool,
}

impl<'a> Looker<'a> {
    fn new(path: &'a Path, console: Console) -> Result<Self> {
        if path.to_str() == Some("mem:") {
            let message = "`mem:` is a table in the memory of this command, which nobody uses";
            return Err(Failure::new(Exit::CannotOpen, message)
                .hint("give the file of a store; a program asks its own with Db::sample"));
        }
        let said = String::new();
        Ok(Self { path, console, look_count: 0, before: None, rebuilt: None, said })
    }

    /// Looks, if there is something to see.
    fn look(&mut self) -> Result<Option<LiveStore>> {
        let metadata = fs::metadata(self.path).ok();
        if self.rebuilt.is_some() && metadata.as_ref().map(version) == self.rebuilt {
            return Ok(None);
        }
        let opened = match store::open_untouched(self.path, self.console) {
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::Locked => {
                self.say(&format!("nothing to see: {error}"));
                return Ok(None);
            }
            Err(error) if error.kind() == ErrorKind::NotFound && self.before.is_some() => {
                self.say(&format!("`{}` has gone; waiting for it", self.path.display()));
                return Ok(None);
            }
            Err(error) => return Err(store::opening(self.path, &error)),
        };
        self.look_count += 1;
        self.rebuilt = None;
        let file = metadata.as_ref().map(|found| (found.dev(), found.ino()));
        let Some(db) = opened.as_store() else {
            return self.look_at_other(&opened, file).map(Some);
        };
        let live = self.look_at_store(db, &opened, file)?;
        if let Recovery::Replayed { .. } = db.recovery() {
            self.rebuilt = fs::metadata(self.path).ok().as_ref().map(version);
        }
        Ok(Some(live))
    }

    /// Takes a sample of a store.
    fn look_at_store(
        &mut self,
        db: &Db,
        opened: &Opened,
        file: Option<(u64, u64)>,
    ) -> Result<LiveStore> {
        let sample =
            db.sample(BUCKET_COUNT, self.look_count).map_err(|error| opened.failed(&error))?;
        let at = Instant::now();
        let since = self.before.as_ref().and_then(|before| {
            let now = sample.lookups.filter(|_| before.file == file)?;
            let lookups = now.since(before.lookups.as_ref()?);
            let is_shown = now.is_counting || lookups != Lookups::default();
            is_shown.then(|| LiveLookups::of(&lookups, at - before.at))
        });
        let live = LiveStore::of_sample(&self.path.display().to_string(), &sample, since);
        self.tell(&live, file);
        self.before = Some(Before {
            at,
            file,
            lookups: sample.lookups,
            writer: live.writer,
            bucket_count: live.bucket_count,
            is_counting: live.is_counting,
        });
        Ok(live)
    }

    /// Counts the chains of a table of another access method.
    fn look_at_other(&mut self, opened: &Opened, file: Option<(u64, u64)>) -> Result<LiveStore> {
        let stats = opened.stats().map_err(|error| opened.failed(&error))?;
        let live = LiveStore::of_stats(&self.path.display().to_string(), &stats);
        let (bucket_count, is_counting) = (live.bucket_count, false);
        let (at, lookups, writer) = (Instant::now(), None, None);
        self.before = Some(Before { at, file, lookups, writer, bucket_count, is_counting });
        Ok(live)
    }

    /// Says what has become of a store since the look before.
    fn tell(&mut self, live: &LiveStore, file: Option<(u64, u64)>) {
        let name = self.path.display().to_string();
        let before = self.before.as_ref();
        let (was_counting, writer) = match before {
            Some(before) => (before.is_counting, before.writer),
            None => (true, Some("writing")),
        };
        let mut sentences = Vec::new();
        if before.is_some_and(|before| before.file != file) {
            sentences.push(format!("`{name}` was replaced: another file has the name now"));
        }
        let shrunk = before.filter(|before| live.bucket_count < before.bucket_count / 2);
        if let Some(Before { bucket_count, .. }) = shrunk {
            let (was, is) = (grouped(*bucket_count), grouped(live.bucket_count));
            sentences.push(format!("`{name}` has shrunk from {was} buckets to {is}"));
        }
        if live.writer != writer {
            sentences.push(match live.writer {
                Some("closed") => format!("nobody writes `{name}`: it is closed"),
                Some("killed") => {
                    format!("nobody writes `{name}`: the last who did was killed, and left it open")
                }
                Some("between_turns") => format!("those that write `{name}` take turns"),
                _ => format!("a process writes `{name}`"),
            });
        }
        if was_counting && !live.is_counting {
            let how = format!("{}{}", HOW_TO_COUNT[..1].to_lowercase(), &HOW_TO_COUNT[1..]);
            sentences.push(how);
        }
        self.said.clear();
        for sentence in sentences {
            self.console.note(sentence);
        }
    }

    /// Says why there is nothing to see, unless that was said last.
    fn say(&mut self, sentence: &str) {
        if self.said != sentence {
            self.console.note(sentence);
            sentence.clone_into(&mut self.said);
        }
    }
}

/// Returns numbers that change with a file.
fn version(file: &Metadata) -> [u64; 4] {
    let changed_ns = file.mtime().cast_unsigned() << 32 ^ file.mtime_nsec().cast_unsigned();
    [file.dev(), file.ino(), file.len(), changed_ns]
}

/// Prints looks one below the other.
struct Printer {
    form: Form,
    /// Whether the columns of the last heading have lookups; `None` before the first.
    is_counting: Option<bool>,
}

impl Printer {
    fn print(&mut self, live: &LiveStore) -> Result<()> {
        let style = match self.form {
            Form::Json => return console::print_json(live),
            Form::Text(style) => style,
        };
        let rows = &live.chains.rows;
        console::print_styled(&match style {
            chains::Form::Full => self.line(live),
            chains::Form::Vmstat => chains::vmstat_text(&live.store, rows),
            chains::Form::Lever => {
                let lines = match &live.lookups {
                    Some(lookups) => chains::lever_text_with(rows, &lookups.counts()),
                    None => chains::lever_text(rows),
                };
                format!("{}\n{lines}\n", of_sample(live))
            }
        })
    }

    /// Returns the line of a look beside the ideal, and before it the heading if that has changed.
    fn line(&mut self, live: &LiveStore) -> String {
        let is_counting = live.is_counting || live.lookups.is_some();
        let mut out = String::new();
        if self.is_counting.replace(is_counting) != Some(is_counting) {
            out = heading(is_counting);
        }
        let chains = &live.chains;
        let load = float(live.record_count) / float(live.bucket_count.max(1));
        let beside = |found: f64, ideal: f64| format!("{found:.3} ({ideal:.3})");
        let hit = beside(chains.probes_hit, chains.probes_hit_ideal);
        let miss = beside(chains.probes_miss, chains.probes_miss_ideal);
        let longest = format!("{} ({:.1})", chains.longest, chains.longest_ideal);
        let (records, buckets) = (grouped(live.record_count), grouped(live.bucket_count));
        let _ = write!(
            out,
            "{records:>13} {buckets:>11} {load:>6.2} {hit:>19} {miss:>19} {longest:>16}"
        );
        if is_counting {
            out += &lookup_columns(live.lookups.as_ref());
        }
        out.push('\n');
        out
    }
}

fn heading(is_counting: bool) -> String {
    let [records, buckets, load] = ["records", "buckets", "load"];
    let [hit, miss, longest] = ["lines, hit (ideal)", "lines, miss (ideal)", "longest (ideal)"];
    let mut heading =
        format!("{records:>13} {buckets:>11} {load:>6} {hit:>19} {miss:>19} {longest:>16}");
    if is_counting {
        let [lookups, hits, in_vain, lines] = ["lookups/s", "hits, %", "in vain", "lines"];
        let _ = write!(heading, " {lookups:>12} {hits:>7} {in_vain:>7} {lines:>6}");
    }
    heading.push('\n');
    heading
}

/// Returns the columns of the lookups since the look before, of which there are none yet after the first.
fn lookup_columns(lookups: Option<&LiveLookups>) -> String {
    let Some(it) = lookups else { return format!(" {:>12} {:>7} {:>7} {:>6}", "-", "-", "-", "-") };
    let LiveLookups { per_second, hit_share, in_vain_per_lookup, lines_per_lookup, .. } = *it;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is shown")]
    let per_second = grouped(per_second.round() as u64);
    let hits = 100.0 * hit_share;
    format!(" {per_second:>12} {hits:>7.1} {in_vain_per_lookup:>7.3} {lines_per_lookup:>6.3}")
}

/// Says of which buckets the lines below are.
fn of_sample(live: &LiveStore) -> String {
    let LiveStore { store, bucket_count, sampled_bucket_count, record_count, .. } = live;
    format!(
        "{store}: {} of {} and {}",
        grouped(*sampled_bucket_count),
        counted(*bucket_count, "bucket"),
        counted(*record_count, "record")
    )
}
