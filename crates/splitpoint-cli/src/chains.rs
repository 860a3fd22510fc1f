//! The chain histogram of a store as text, and in the formats of two other programs.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use splitpoint::stats::{ChainHistogram, ChainRow, Lookups};
use splitpoint_lab::document::Look;
use splitpoint_lab::report;

use crate::look::look;
use crate::number::percent;

pub(crate) use splitpoint_lab::report::chains_warning as warning;

/// Columns of the histogram of a store, regardless of the terminal's width.
const COLUMNS: usize = 80;
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// How a histogram is printed
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// Bars, the ideal, and the resulting cost of lookups
    #[default]
    Full,
    /// The lines that Lever's patch for Linux 2.2 logged: size, buckets, items, sum-pct
    Lever,
    /// The line that NetBSD's vmstat -H prints: buckets, used, util, items, average and maximum
    /// chain
    Vmstat,
}

/// [`Form::Lever`] puts chains of at least this many keys into one row.
const LEVER_LARGER: u64 = 16;

/// Returns the histogram as Lever's patch logged it.
///
/// Source: Lever, "Linux kernel hash table behavior", 2000, histograms 1 to 5.
pub(crate) fn lever_text(rows: &[ChainRow]) -> String {
    lever_text_of(rows, ["objects", "items"], "")
}

/// Returns the same with what lookups have cost, as the patch logged it: iterations are the records
/// that a lookup compares in vain.
pub(crate) fn lever_text_with(rows: &[ChainRow], lookups: &Lookups) -> String {
    let Lookups { lookup_count, hit_count, compared_count, .. } = *lookups;
    let per = |part: u64, of: u128| u128::from(part) * of / u128::from(lookup_count.max(1));
    let in_vain = compared_count.saturating_sub(hit_count);
    let (hit_rate, iterations) = (per(hit_count, 100), per(in_vain, 1000));
    format!(
        "total lookups: {lookup_count} (hit rate: {hit_rate}%)\n{}",
        lever_text_of(
            rows,
            ["objects", "items"],
            &format!("get() iterations/lookup: {iterations}/1000\n")
        )
    )
}

/// Returns the same with the names that the patch gave to what is in a bucket, in the lines and above
/// the column, and with lines about the lookups before the histogram.
pub(crate) fn lever_text_of(rows: &[ChainRow], nouns: [&str; 2], lookups: &str) -> String {
    let Totals { buckets, used: _, items, longest } = Totals::of(rows);
    let [in_bucket, column] = nouns;
    let mut out = format!(
        "hash table size is {buckets} buckets\nhash table contains {items} objects\n\
         largest bucket contains {longest} {in_bucket}\n{lookups}hash table histogram:\n\
         {:>5}{:>11}{column:>14}{:>9}\n",
        "size", "buckets", "sum-pct"
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
/// The average is over the buckets in use and rounded down, as in the original.
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

/// Returns the histogram of a store with its bars, and the lines below it. `remedy` is what to do
/// if chance does not explain the longest chains: whole lines.
pub(crate) fn to_text(chains: &ChainHistogram, remedy: &str) -> String {
    let look = Look { columns: COLUMNS, ..look(false) };
    let mut out = report::chains(chains).text(&look);
    if let Some(warning) = warning(chains) {
        let _ = write!(out, "\n{WARNING}warning:{WARNING:#} {warning}\n{remedy}");
    }
    out
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
Buckets by the number of their keys, beside the ideal
size  buckets  keys  sum-pct  ideal  # measured | ideal
   0       10     0     0.00   12.5  ###########  |
   1       40    40    40.00   30.0  ################################|#########
   2       30    60   100.00   31.0  ################################ |
   3        0     0   100.00  0.200

What they cost, beside the ideal
                        measured  ideal
lines looked at, hit       1.000  1.001  mean
lines looked at, miss      1.000  1.002  mean
keys in fullest bucket         2    2.6  p = 0.930
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
        assert!(text.contains("\n 32+  "), "{text}");
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
