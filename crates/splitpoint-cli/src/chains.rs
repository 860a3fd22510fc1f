//! The chain histogram as text: of a live store and of a measured table, in the same columns.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use splitpoint::stats::{ChainHistogram, ChainRow};

use splitpoint_lab::number::p_is;

use crate::number::{counted, float, grouped, grouped_tenths, percent};

const BOLD: Style = Style::new().bold();
const MEASURED: Style = AnsiColor::Cyan.on_default();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const IDEAL: Style = AnsiColor::Yellow.on_default().bold();

/// Width of the bars in columns.
const BAR_COLUMNS: usize = 26;
/// Rows of the histogram that are shown one by one; longer chains share the last row.
const ROWS_MAX: usize = 32;

/// How a histogram is printed
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// With bars, the ideal and what it comes to
    #[default]
    Full,
    /// The lines that Lever's patch to Linux 2.2 logged: size, buckets, items, sum-pct
    Lever,
    /// The line of NetBSD's vmstat -H: buckets, used, util, items, average and maximum chain
    Vmstat,
}

/// Chains of this many keys and more share a row in [`Form::Lever`].
const LEVER_LARGER: u64 = 16;

/// Returns the histogram of the table `name` as Lever's patch logged it.
///
/// Source: Lever, "Linux kernel hash table behavior", 2000, histograms 1 to 5.
pub(crate) fn lever_text(rows: &[ChainRow]) -> String {
    let Totals { buckets, used: _, items, longest } = Totals::of(rows);
    let mut out = format!(
        "hash table size is {buckets} buckets\nhash table contains {items} objects\n\
         largest bucket contains {longest} objects\nhash table histogram:\n\
         {:>5}{:>11}{:>14}{:>9}\n",
        "size", "buckets", "items", "sum-pct"
    );
    let mut so_far = 0;
    let mut line = |size: &str, found: u64, keys: u64| {
        so_far += keys;
        let share = if items == 0 { 100 } else { 100 * u128::from(so_far) / u128::from(items) };
        let _ = writeln!(out, "{size:>5}{found:>11}{keys:>14}{share:>9}");
    };
    for size in 0..LEVER_LARGER {
        let found = rows.iter().find(|row| row.size == size).map_or(0, |row| row.bucket_count);
        line(&size.to_string(), found, found * size);
    }
    let larger = rows.iter().filter(|row| row.size >= LEVER_LARGER);
    let (found, keys) = larger
        .fold((0, 0), |(buckets, keys), row| (buckets + row.bucket_count, keys + row.item_count));
    line(&format!(">{}", LEVER_LARGER - 1), found, keys);
    out
}

/// Returns the line of the table `name` as NetBSD's `vmstat -H` prints it, with its heading.
///
/// The average is of the buckets in use, and whole, as there.
pub(crate) fn vmstat_text(name: &str, rows: &[ChainRow]) -> String {
    let Totals { buckets, used, items, longest } = Totals::of(rows);
    let util = percent(used, buckets);
    let average = items.checked_div(used).unwrap_or(0);
    format!(
        "{:<16} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n{:<16} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n\
         {name:<16} {buckets:>8} {used:>8} {util:>8.2} {items:>8} {average:>8} {longest:>8}\n",
        "",
        "total",
        "used",
        "util",
        "num",
        "average",
        "maximum",
        "hash table",
        "buckets",
        "buckets",
        "%",
        "items",
        "chain",
        "chain",
    )
}

/// What the rows of a histogram add up to.
struct Totals {
    buckets: u64,
    used: u64,
    items: u64,
    longest: u64,
}

impl Totals {
    fn of(rows: &[ChainRow]) -> Self {
        let in_use = rows.iter().filter(|row| row.size > 0 && row.bucket_count > 0);
        Self {
            buckets: rows.iter().map(|row| row.bucket_count).sum(),
            used: in_use.clone().map(|row| row.bucket_count).sum(),
            items: rows.iter().map(|row| row.item_count).sum(),
            longest: in_use.map(|row| row.size).max().unwrap_or(0),
        }
    }
}

/// Returns the histogram of a store with its bars, and the lines below it. `remedy` is what to do if
/// chance does not explain the longest chains: whole lines.
pub(crate) fn to_text(chains: &ChainHistogram, remedy: &str) -> String {
    let mut out = histogram_text(&chains.rows);
    out.push('\n');
    push_means(chains, &mut out);
    if let Some(warning) = warning(chains) {
        let _ = write!(out, "\n{WARNING}warning:{WARNING:#} {warning}\n{remedy}");
    }
    out
}

/// Says which chains chance does not explain, if there are any.
pub(crate) fn warning(chains: &ChainHistogram) -> Option<String> {
    let ChainHistogram { beyond_chance_count: count, longest_by_chance, .. } = *chains;
    let verb = if count == 1 { "has" } else { "have" };
    (count > 0).then(|| {
        format!(
            "{} {verb} more than {} keys, which is not by chance",
            counted(count, "bucket"),
            grouped(longest_by_chance),
        )
    })
}

fn push_means(chains: &ChainHistogram, out: &mut String) {
    let _ = writeln!(out, "{BOLD}{:<26}{:>9}{:>11}{BOLD:#}", "", "measured", "ideal");
    for (name, measured, ideal, unit) in [
        ("lines looked at, hit", chains.probes_hit, chains.probes_hit_ideal, "mean"),
        ("lines looked at, miss", chains.probes_miss, chains.probes_miss_ideal, "mean"),
    ] {
        let _ = writeln!(out, "{name:<26}{measured:>9.3}{ideal:>11.3}   {unit}");
    }
    let _ = writeln!(
        out,
        "{:<26}{:>9}{:>11.1}   {}",
        "keys in fullest bucket",
        grouped(chains.longest),
        chains.longest_ideal,
        verdict(chains)
    );
}

/// Returns what the longest chain says of the hash function.
fn verdict(chains: &ChainHistogram) -> String {
    let p = chains.longest_p;
    if chains.beyond_chance_count > 0 { "not by chance: see below".to_string() } else { p_is(p) }
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
    let scale = rows
        .iter()
        .map(|row| row.ideal_bucket_count.max(float(row.bucket_count)))
        .fold(1., f64::max);
    // Sizes that no bucket has and that are not to be expected say nothing.
    let rows: Vec<&ChainRow> =
        rows.iter().filter(|row| row.bucket_count > 0 || row.ideal_bucket_count >= 0.05).collect();
    let (shown, rest) = rows.split_at(rows.len().min(ROWS_MAX));
    for row in shown {
        let _ = writeln!(out, "{}", row_text(row, &row.size.to_string(), scale));
    }
    if let Some(rest) = sum(rest) {
        let _ = writeln!(out, "{}", row_text(&rest, &format!("{}+", rest.size), scale));
    }
    out
}

/// Returns the sum of `rows`, under the size of the first.
fn sum(rows: &[&ChainRow]) -> Option<ChainRow> {
    let (first, last) = (rows.first()?, rows.last()?);
    Some(ChainRow {
        size: first.size,
        bucket_count: rows.iter().map(|row| row.bucket_count).sum(),
        item_count: rows.iter().map(|row| row.item_count).sum(),
        cumulative_percent: last.cumulative_percent,
        ideal_bucket_count: rows.iter().map(|row| row.ideal_bucket_count).sum(),
    })
}

fn row_text(row: &ChainRow, size: &str, scale: f64) -> String {
    format!(
        "{size:>5}{:>11}{:>14}{:>9.2}{:>13}  {}",
        grouped(row.bucket_count),
        grouped(row.item_count),
        row.cumulative_percent,
        grouped_tenths(row.ideal_bucket_count),
        bar(float(row.bucket_count) / scale, row.ideal_bucket_count / scale)
    )
    .trim_end()
    .to_string()
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

    fn sample() -> ChainHistogram {
        let row = |size, bucket_count, cumulative_percent, ideal_bucket_count| ChainRow {
            size,
            bucket_count,
            item_count: size * bucket_count,
            cumulative_percent,
            ideal_bucket_count,
        };
        ChainHistogram {
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
            beyond_chance_count: 0,
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
        assert_eq!(plain(&to_text(&sample(), "never shown")), expected[1..]);
    }

    #[test]
    fn every_line_fits_80_columns() {
        let mut report = sample();
        for size in 4..100 {
            report.rows.push(ChainRow {
                size,
                bucket_count: 4_294_967,
                item_count: 429_496_729,
                cumulative_percent: 99.99,
                ideal_bucket_count: 4_294_967.1,
            });
        }
        report.longest_p = 1e-300;
        report.beyond_chance_count = 4_294_967_296;
        let text = plain(&to_text(&report, "do something\n"));
        let warning = "\nwarning: 4,294,967,296 buckets have more than 9 keys, which is not by chance\n\
                       do something\n";
        assert!(text.ends_with(warning), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("  32+"), "{text}");
    }

    /// The table of Mewburn's message of 2001, with chains that add up to its figures.
    #[test]
    fn the_line_of_vmstat_is_that_of_netbsd() {
        let row = |size, bucket_count| ChainRow {
            size,
            bucket_count,
            item_count: size * bucket_count,
            cumulative_percent: 0.0,
            ideal_bucket_count: 0.0,
        };
        let rows = [row(0, 64_536), row(2, 1), row(34, 905), row(40, 93), row(105, 1), row(106, 0)];
        assert_eq!(
            vmstat_text("nfsnodehash", &rows),
            "                    total     used     util      num  average  maximum\n\
             hash table        buckets  buckets        %    items    chain    chain\n\
             nfsnodehash         65536     1000     1.53    34597       34      105\n"
        );
        let text = lever_text(&rows);
        assert!(text.starts_with(
            "hash table size is 65536 buckets\nhash table contains 34597 objects\n\
             largest bucket contains 105 objects\nhash table histogram:\n \
             size    buckets         items  sum-pct\n    0      64536             0        0\n"
        ));
        assert!(
            text.ends_with(
                "   15          0             0        0\n  >15        999         34595      100\n"
            ),
            "{text}"
        );
        assert!(lever_text(&[]).ends_with("100\n") && vmstat_text("none", &[]).ends_with(" 0\n"));
    }
}
