//! What `stat` and `demo` tell of a store: one serialized struct, and its text for 80 columns.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use splitpoint::{ChainHistogram, Recovery, Stats};

use crate::number::{bytes, counted, float, grouped, grouped_tenths, percent};

const BOLD: Style = Style::new().bold();
const MEASURED: Style = AnsiColor::Cyan.on_default();
const IDEAL: Style = AnsiColor::Yellow.on_default().bold();

/// Everything that is known of a store.
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
    recovery: RecoveryReport,
    chains: ChainReport,
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
    free: u64,
}

/// How this process came to the index.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum RecoveryReport {
    Created,
    Clean,
    TakenOver { records: u64 },
    Replayed { checkpoint_keys: u64, records: u64, dropped_bytes: u64 },
    Unknown,
}

/// Chains by the number of their keys.
#[derive(Debug, Serialize)]
pub(crate) struct ChainReport {
    rows: Vec<ChainRow>,
    probes_hit: f64,
    probes_hit_ideal: f64,
    probes_miss: f64,
    probes_miss_ideal: f64,
    longest: u64,
    longest_ideal: f64,
    longest_p: f64,
    longest_by_chance: u64,
    beyond_chance: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ChainRow {
    size: u64,
    buckets: u64,
    keys: u64,
    cumulative_percent: f64,
    ideal_buckets: f64,
}

impl StatReport {
    /// Makes the report of the store that the user calls `store`.
    pub(crate) fn new(store: String, stats: &Stats) -> Self {
        let recovery = match stats.recovery {
            Recovery::Created => RecoveryReport::Created,
            Recovery::Clean => RecoveryReport::Clean,
            Recovery::TakenOver { records } => RecoveryReport::TakenOver { records },
            Recovery::Replayed { checkpoint_keys, records, dropped_bytes } => {
                RecoveryReport::Replayed { checkpoint_keys, records, dropped_bytes }
            }
            _ => RecoveryReport::Unknown,
        };
        Self {
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
                free: stats.segments.free,
            },
            hash: stats.hash_name.clone(),
            log_bytes: stats.log_bytes,
            durable_bytes: stats.durable_bytes,
            recovery,
            chains: ChainReport::new(&stats.chains),
        }
    }

    /// Returns the report as text.
    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        self.push_facts(&mut out);
        out.push('\n');
        self.push_segments(&mut out);
        out.push('\n');
        out += &self.chains.to_text();
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
            format!("{} keys a bucket, {keys_per_bucket:.2} now", self.fill_factor)
        });
        fact("load factor", format!("{:.3} of the slots are used", self.load_factor));
        fact("live bytes", size(self.live_bytes));
        fact("dead bytes", size(self.dead_bytes));
        fact("log", self.log_in_words());
        fact("recovery", self.recovery.in_words());
    }

    fn log_in_words(&self) -> String {
        let written = size(self.log_bytes);
        if self.durable_bytes >= self.log_bytes {
            format!("{written}, all durable")
        } else {
            format!("{written}, {} durable", size(self.durable_bytes))
        }
    }

    fn push_segments(&self, out: &mut String) {
        let Segments { header, log, big, index, overflow, checkpoint, free } = self.segments;
        let _ = writeln!(out, "{BOLD}{:<16}{:>17}{:>9}{BOLD:#}", "segments", "bytes", "share");
        for (name, part) in [
            ("header", header),
            ("log", log),
            ("big values", big),
            ("index", index),
            ("overflow", overflow),
            ("checkpoint", checkpoint),
            ("free", free),
            ("file", self.file_bytes),
        ] {
            let share = percent(part, self.file_bytes);
            let _ = writeln!(out, "  {name:<14}{:>17}{share:>7.1} %", grouped(part));
        }
    }
}

impl RecoveryReport {
    fn in_words(&self) -> String {
        match self {
            Self::Created => "none: the store is new".to_string(),
            Self::Clean => "none: the store had been closed".to_string(),
            Self::TakenOver { records } => format!(
                "the last writer was killed; its index was taken over, {} applied",
                counted(*records, "record")
            ),
            Self::Replayed { checkpoint_keys, records, dropped_bytes } => format!(
                "index rebuilt from {}, {} torn off the end",
                rebuilt_from(*checkpoint_keys, *records),
                bytes(*dropped_bytes)
            ),
            Self::Unknown => "of a kind that this command does not know".to_string(),
        }
    }
}

/// Returns what an index was built from after a power loss.
pub(crate) fn rebuilt_from(checkpoint_keys: u64, records: u64) -> String {
    if checkpoint_keys == 0 {
        return counted(records, "record");
    }
    let (keys, records) = (counted(checkpoint_keys, "key"), counted(records, "record"));
    format!("a checkpoint of {keys} and {records} after it")
}

/// Returns bytes exactly and, where that is long, roughly.
fn size(count: u64) -> String {
    if count < 1024 { bytes(count) } else { format!("{} ({})", grouped(count), bytes(count)) }
}

/// Width of the bars in columns.
const BAR_COLUMNS: usize = 26;
/// Rows of the histogram that are shown one by one; longer chains share the last row.
const ROWS_MAX: usize = 32;

impl ChainReport {
    /// Makes the report of a histogram.
    pub(crate) fn new(chains: &ChainHistogram) -> Self {
        let row_of = |row: &splitpoint::ChainRow| ChainRow {
            size: row.size,
            buckets: row.bucket_count,
            keys: row.item_count,
            cumulative_percent: row.cumulative_percent,
            ideal_buckets: row.ideal_bucket_count,
        };
        Self {
            rows: chains.rows.iter().map(row_of).collect(),
            probes_hit: chains.probes_hit,
            probes_hit_ideal: chains.probes_hit_ideal,
            probes_miss: chains.probes_miss,
            probes_miss_ideal: chains.probes_miss_ideal,
            longest: chains.longest,
            longest_ideal: chains.longest_ideal,
            longest_p: chains.longest_p,
            longest_by_chance: chains.longest_by_chance,
            beyond_chance: chains.beyond_chance_count,
        }
    }

    /// Returns the histogram with its bars, and the lines below it.
    pub(crate) fn to_text(&self) -> String {
        let mut out = histogram_text(&self.rows);
        out.push('\n');
        self.push_means(&mut out);
        out
    }

    fn push_means(&self, out: &mut String) {
        let _ = writeln!(out, "{BOLD}{:<26}{:>9}{:>11}{BOLD:#}", "", "measured", "ideal");
        for (name, measured, ideal, unit) in [
            ("lines looked at, hit", self.probes_hit, self.probes_hit_ideal, "mean"),
            ("lines looked at, miss", self.probes_miss, self.probes_miss_ideal, "mean"),
        ] {
            let _ = writeln!(out, "{name:<26}{measured:>9.3}{ideal:>11.3}   {unit}");
        }
        let _ = writeln!(
            out,
            "{:<26}{:>9}{:>11.1}   {}",
            "keys in fullest bucket",
            grouped(self.longest),
            self.longest_ideal,
            self.verdict()
        );
        if self.beyond_chance > 0 {
            let _ = writeln!(
                out,
                "\n{} with more than {} keys, which chance does not give.\n\
                 The hash function does not suit these keys, or somebody chose them to harm;\n\
                 a store made with `splitpoint create FILE --hash siphash-1-3` resists both.",
                counted(self.beyond_chance, "bucket"),
                grouped(self.longest_by_chance)
            );
        }
    }

    /// Returns what the longest chain says of the hash function.
    fn verdict(&self) -> String {
        let p = self.longest_p;
        if self.beyond_chance > 0 {
            "not by chance: see below".to_string()
        } else if p >= 0.0005 {
            format!("p = {p:.3}")
        } else {
            format!("p = {p:.0e}")
        }
    }
}

/// Returns the rows of a histogram with their bars.
pub(crate) fn histogram_text(rows: &[ChainRow]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{BOLD}{:>5}{:>11}{:>14}{:>9}{:>13}{BOLD:#}  {MEASURED}#{MEASURED:#} measured  \
             {IDEAL}|{IDEAL:#} ideal",
        "size", "buckets", "keys", "sum-pct", "ideal"
    );
    let scale = rows.iter().map(|row| row.ideal_buckets.max(float(row.buckets))).fold(1., f64::max);
    // Sizes that no bucket has and that are not to be expected say nothing.
    let rows: Vec<&ChainRow> =
        rows.iter().filter(|row| row.buckets > 0 || row.ideal_buckets >= 0.05).collect();
    let (shown, rest) = rows.split_at(rows.len().min(ROWS_MAX));
    for row in shown {
        let _ = writeln!(out, "{}", row.to_text(&row.size.to_string(), scale));
    }
    if let Some(rest) = ChainRow::sum(rest) {
        let _ = writeln!(out, "{}", rest.to_text(&format!("{}+", rest.size), scale));
    }
    out
}

impl From<&splitpoint_lab::measure::Row> for ChainRow {
    fn from(row: &splitpoint_lab::measure::Row) -> Self {
        Self {
            size: row.size,
            buckets: row.buckets,
            keys: row.keys,
            cumulative_percent: row.cumulative_percent,
            ideal_buckets: row.ideal_buckets,
        }
    }
}

impl ChainRow {
    /// Returns the sum of `rows`, under the size of the first.
    fn sum(rows: &[&Self]) -> Option<Self> {
        let (first, last) = (rows.first()?, rows.last()?);
        Some(Self {
            size: first.size,
            buckets: rows.iter().map(|row| row.buckets).sum(),
            keys: rows.iter().map(|row| row.keys).sum(),
            cumulative_percent: last.cumulative_percent,
            ideal_buckets: rows.iter().map(|row| row.ideal_buckets).sum(),
        })
    }

    fn to_text(&self, size: &str, scale: f64) -> String {
        format!(
            "{size:>5}{:>11}{:>14}{:>9.2}{:>13}  {}",
            grouped(self.buckets),
            grouped(self.keys),
            self.cumulative_percent,
            grouped_tenths(self.ideal_buckets),
            bar(float(self.buckets) / scale, self.ideal_buckets / scale)
        )
        .trim_end()
        .to_string()
    }
}

/// Draws a share of the full width with a mark where the ideal is: `#####|##` or `#####  |`.
fn bar(measured: f64, ideal: f64) -> String {
    let mut end = columns(measured);
    if measured > 0.0 {
        end = end.max(1);
    }
    let mark = (ideal > 0.0).then(|| columns(ideal)).filter(|mark| *mark > 0 || end > 0);
    let mut out = String::new();
    let piece = |from: usize, to: usize| -> String {
        let filled = end.clamp(from, to) - from;
        let (bar, gap) = ("#".repeat(filled), " ".repeat(to - from - filled));
        if bar.is_empty() { gap } else { format!("{MEASURED}{bar}{MEASURED:#}{gap}") }
    };
    match mark {
        None => out += &piece(0, end),
        Some(mark) => {
            out += &piece(0, mark);
            let _ = write!(out, "{IDEAL}|{IDEAL:#}");
            out += &piece(mark + 1, end.max(mark + 1));
        }
    }
    out
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a few columns"
)]
fn columns(share: f64) -> usize {
    (share.clamp(0.0, 1.0) * (BAR_COLUMNS - 1) as f64).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn sample() -> ChainReport {
        let row = |size, buckets, cumulative_percent, ideal_buckets| ChainRow {
            size,
            buckets,
            keys: size * buckets,
            cumulative_percent,
            ideal_buckets,
        };
        ChainReport {
            rows: vec![
                row(0, 10, 0.0, 12.5),
                row(1, 40, 40.0, 30.0),
                row(2, 30, 100.0, 31.0),
                row(3, 0, 100.0, 0.2),
            ],
            probes_hit: 1.0,
            probes_hit_ideal: 1.001,
            probes_miss: 1.0,
            probes_miss_ideal: 1.002,
            longest: 2,
            longest_ideal: 2.6,
            longest_p: 0.93,
            longest_by_chance: 9,
            beyond_chance: 0,
        }
    }

    #[test]
    fn the_histogram_sets_the_measured_beside_the_ideal() {
        let expected = "
 size    buckets          keys  sum-pct        ideal  # measured  | ideal
    0         10             0     0.00         12.5  ######  |
    1         40            40    40.00         30.0  ###################|#####
    2         30            60   100.00         31.0  ###################|
    3          0             0   100.00          0.2

                           measured      ideal
lines looked at, hit          1.000      1.001   mean
lines looked at, miss         1.000      1.002   mean
keys in fullest bucket            2        2.6   p = 0.930
";
        assert_eq!(plain(&sample().to_text()), expected[1..]);
    }

    #[test]
    fn every_line_fits_80_columns() {
        let mut report = sample();
        for size in 4..100 {
            report.rows.push(ChainRow {
                size,
                buckets: 4_294_967,
                keys: 429_496_729,
                cumulative_percent: 99.99,
                ideal_buckets: 4_294_967.1,
            });
        }
        report.longest_p = 1e-300;
        report.beyond_chance = 4_294_967_296;
        let text = plain(&report.to_text());
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("  32+"), "{text}");
    }
}
