//! The report of `stat` on a store: one serialized struct, and its text for 80 columns.

use std::fmt::Write as _;
use std::time::Duration;

use anstyle::Style;
use serde::Serialize;
use splitpoint::Recovery;
use splitpoint::stats::{ChainHistogram, ReaderStats, Stats};

use crate::chains;
use crate::number::{bytes, counted, duration, float, grouped, percent};
use crate::shell::shell_word;

const BOLD: Style = Style::new().bold();

/// All facts about a store.
#[derive(Debug, Serialize)]
pub(crate) struct StatReport {
    store: String,
    records: u64,
    buckets: u64,
    level: u32,
    split_pointer: u64,
    fill_factor: f64,
    load_factor: f64,
    overflow_lines: u64,
    overflow_lines_free: u64,
    live_bytes: u64,
    dead_bytes: u64,
    file_bytes: u64,
    segments: Segments,
    hash: String,
    log_bytes: u64,
    durable_bytes: u64,
    /// Bytes that this process has written for a byte of its log, if it has written any.
    write_amplification: Option<f64>,
    /// For how long a borrowed value, a scan or a backup of this process has held space back that
    /// is wanted again, in milliseconds.
    held_up_ms: Option<u64>,
    /// The other handles that read the store beside a writer, in all processes.
    readers: Vec<ReaderReport>,
    /// Age of the oldest change that is not durable, in milliseconds.
    unsafe_age_ms: Option<u64>,
    recovery: RecoveryReport,
    /// What lookups cost that this process has made, if it has counted them.
    lookups: Option<LookupsReport>,
    #[serde(with = "splitpoint_lab::chains::histogram")]
    chains: ChainHistogram,
    /// A warning about the chains, with a remedy.
    warning: Option<String>,
}

/// Bytes of the file by the kind of segment.
#[derive(Debug, Serialize)]
struct Segments {
    header: u64,
    log: u64,
    big: u64,
    index: u64,
    overflow: u64,
    checkpoint: u64,
    segment_table: u64,
    waiting: u64,
    free: u64,
}

/// A handle that reads the store beside a writer.
#[derive(Debug, Serialize)]
struct ReaderReport {
    /// The number of its place in the reader table.
    place: usize,
    pid: u32,
    age_ms: u64,
    /// Whether it keeps space from being used again.
    holds_space: bool,
}

/// What lookups cost.
#[derive(Debug, Serialize)]
struct LookupsReport {
    lookups: u64,
    hits: u64,
    records_compared: u64,
    index_lines: u64,
}

/// How this process obtained the index.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum RecoveryReport {
    Created,
    Clean,
    TakenOver { records: u64 },
    Replayed { checkpoint_keys: u64, records: u64, dropped_bytes: u64 },
    Unknown,
}

impl StatReport {
    /// Makes the report of a store; `store` is the name that the user gave.
    pub(crate) fn new(store: String, stats: &Stats) -> Self {
        let recovery = match stats.recovery {
            Recovery::Created => RecoveryReport::Created,
            Recovery::Clean => RecoveryReport::Clean,
            Recovery::WarmRestart { records } => RecoveryReport::TakenOver { records },
            Recovery::Replayed { checkpoint_keys, records, dropped_bytes } => {
                RecoveryReport::Replayed { checkpoint_keys, records, dropped_bytes }
            }
            _ => RecoveryReport::Unknown,
        };
        let mut report = Self {
            store,
            records: stats.record_count,
            buckets: stats.geometry.bucket_count(),
            level: stats.geometry.level(),
            split_pointer: stats.geometry.split(),
            fill_factor: stats.fill_factor,
            load_factor: stats.load_factor,
            overflow_lines: stats.overflow_line_count,
            overflow_lines_free: stats.overflow_line_free_count,
            live_bytes: stats.live_bytes,
            dead_bytes: stats.dead_bytes,
            file_bytes: stats.file_bytes,
            segments: Segments {
                header: stats.segments.header,
                log: stats.segments.log,
                big: stats.segments.big,
                index: stats.segments.index,
                overflow: stats.segments.overflow,
                checkpoint: stats.segments.checkpoint,
                segment_table: stats.segments.segment_table,
                waiting: stats.segments.waiting,
                free: stats.segments.free,
            },
            hash: stats.hash_name.clone(),
            log_bytes: stats.log_bytes,
            durable_bytes: stats.durable_bytes,
            write_amplification: (stats.appended_bytes > 0).then(|| stats.write_amplification()),
            held_up_ms: stats.held_up_for.map(|time| time.as_millis() as u64),
            readers: stats.readers.iter().map(ReaderReport::new).collect(),
            unsafe_age_ms: stats.unsafe_age.map(|age| age.as_millis() as u64),
            recovery,
            lookups: stats.lookups.map(|it| LookupsReport {
                lookups: it.lookup_count,
                hits: it.hit_count,
                records_compared: it.compared_count,
                index_lines: it.line_count,
            }),
            chains: stats.chains.clone(),
            warning: None,
        };
        let warning = chains::warning(&report.chains);
        report.warning = warning.map(|warning| {
            let remedy = report.remedy().replace("\n  ", " ").replace('\n', " ");
            format!("{warning}. {}", remedy.trim_end())
        });
        report
    }

    /// Returns the remedy for chains that chance does not explain.
    fn remedy(&self) -> String {
        let file = shell_word(&self.store);
        format!(
            "The hash function does not suit these keys, or someone chose them to collide.\n\
             Move the store to a keyed function:\n  \
             splitpoint rehash {file} --hash siphash-1-3\n"
        )
    }

    /// Returns the report as text.
    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        self.push_facts(&mut out);
        out.push('\n');
        self.push_segments(&mut out);
        out.push('\n');
        self.push_readers(&mut out);
        out += &chains::to_text(&self.chains, &self.remedy());
        out
    }

    fn push_facts(&self, out: &mut String) {
        let _ = writeln!(out, "{BOLD}{}{BOLD:#}", self.store);
        let mut fact = |name: &str, value: String| {
            let _ = writeln!(out, "  {name:<16}{value}");
        };
        fact("records", grouped(self.records));
        fact("hash function", self.hash.clone());
        fact(
            "buckets",
            format!(
                "{}, level {}, split pointer {}",
                grouped(self.buckets),
                self.level,
                grouped(self.split_pointer)
            ),
        );
        fact("overflow lines", {
            format!("{}, {} free", grouped(self.overflow_lines), grouped(self.overflow_lines_free))
        });
        let keys_per_bucket = float(self.records) / float(self.buckets.max(1));
        fact("fill factor", {
            format!("{} keys per bucket, {keys_per_bucket:.2} now", self.fill_factor)
        });
        fact("load factor", format!("{:.3} of the slots are used", self.load_factor));
        fact("live bytes", size(self.live_bytes));
        fact("dead bytes", size(self.dead_bytes));
        let record_bytes = self.live_bytes + self.dead_bytes;
        if record_bytes > 0 {
            fact("live share", format!("{:.1} %", percent(self.live_bytes, record_bytes)));
        }
        fact("log", self.log_in_words());
        if let Some(times) = self.write_amplification {
            fact("amplification", format!("{times:.2} bytes written for each byte of log"));
        }
        if let Some(milliseconds) = self.held_up_ms {
            let seconds = float(milliseconds) / 1000.0;
            fact("oldest pin", format!("holds free space back for {seconds:.1} s"));
        }
        fact("recovery", self.recovery.in_words());
        if let Some(lookups) = &self.lookups {
            fact("lookups", lookups.in_words());
        }
    }

    /// Lists the other readers, if there are any.
    fn push_readers(&self, out: &mut String) {
        if self.readers.is_empty() {
            return;
        }
        let _ = writeln!(out, "{BOLD}{:<16}{:>17}{:>12}{BOLD:#}", "readers", "process", "age");
        for ReaderReport { place, pid, age_ms, holds_space } in &self.readers {
            let (name, age) = (format!("place {place}"), duration(Duration::from_millis(*age_ms)));
            let holding = if *holds_space { "  holds space back" } else { "" };
            let _ = writeln!(out, "  {name:<14}{pid:>17}{age:>12}{holding}");
        }
        out.push('\n');
    }

    fn log_in_words(&self) -> String {
        // Of all time: compaction has taken parts of it away.
        let written = size(self.log_bytes) + " written so far";
        match self.unsafe_age_ms {
            _ if self.durable_bytes >= self.log_bytes => format!("{written}, all durable"),
            None => format!("{written}, {} durable", size(self.durable_bytes)),
            Some(age_ms) => format!(
                "{written}, {} durable; the oldest change that is not is {:.1} s old",
                size(self.durable_bytes),
                float(age_ms) / 1000.0
            ),
        }
    }

    fn push_segments(&self, out: &mut String) {
        let Segments {
            header,
            log,
            big,
            index,
            overflow,
            checkpoint,
            segment_table,
            waiting,
            free,
        } = self.segments;
        let _ = writeln!(out, "{BOLD}{:<16}{:>17}{:>9}{BOLD:#}", "segments", "bytes", "share");
        for (name, part) in [
            ("header", header),
            ("log", log),
            ("big values", big),
            ("index", index),
            ("overflow", overflow),
            ("checkpoint", checkpoint),
            ("segment table", segment_table),
            ("waiting", waiting),
            ("free", free),
            ("file", self.file_bytes),
        ] {
            let share = percent(part, self.file_bytes);
            let _ = writeln!(out, "  {name:<14}{:>17}{share:>7.1} %", grouped(part));
        }
    }
}

impl ReaderReport {
    fn new(reader: &ReaderStats) -> Self {
        Self {
            place: reader.place,
            pid: reader.pid,
            age_ms: reader.age.as_millis() as u64,
            holds_space: reader.is_pinned,
        }
    }
}

impl LookupsReport {
    fn in_words(&self) -> String {
        let per_lookup = |count: u64| float(count) / float(self.lookups.max(1));
        format!(
            "{}, {:.1} % hits; {:.3} records compared, {:.3} lines each",
            grouped(self.lookups),
            percent(self.hits, self.lookups),
            per_lookup(self.records_compared),
            per_lookup(self.index_lines)
        )
    }
}

impl RecoveryReport {
    fn in_words(&self) -> String {
        match self {
            Self::Created => "none: the store is new".to_string(),
            Self::Clean => "none: the store had been closed".to_string(),
            // Which of the two it is may change at any time.
            Self::TakenOver { .. } => "none: its writer has it open, or was killed".to_string(),
            Self::Replayed { checkpoint_keys, records, dropped_bytes } => format!(
                "index rebuilt from {}, {} cut off the end",
                rebuilt_from(*checkpoint_keys, *records),
                bytes(*dropped_bytes)
            ),
            Self::Unknown => "unknown to this command".to_string(),
        }
    }
}

/// Describes the source of an index rebuilt after a power loss.
pub(crate) fn rebuilt_from(checkpoint_keys: u64, records: u64) -> String {
    if checkpoint_keys == 0 {
        return counted(records, "record");
    }
    let (keys, records) = (counted(checkpoint_keys, "key"), counted(records, "record"));
    format!("a checkpoint of {keys} and {records} after it")
}

/// Returns a number of bytes, and a rounded form if it is large.
fn size(count: u64) -> String {
    if count < 1024 { bytes(count) } else { format!("{} ({})", grouped(count), bytes(count)) }
}
