//! The chains of a store's own table, beside the ideal.

use splitpoint::stats::{ChainHistogram, ChainRow};

use super::number::{counted, expected, fixed, grouped, p_is};
use super::sizes::is_seen;
use crate::chains::LiveTable;
use crate::document::{Bar, Block, Line, Table, cells};

/// Rows that are shown one by one; longer chains share the last row.
const ROWS_MAX: usize = 32;

/// Returns the chains of the store that the keys are of.
pub(super) fn section(live: &LiveTable) -> Vec<Block> {
    let mut blocks = vec![Block::Prose(Line::from(format!(
        "{}, {}, {}, as they are in the file of the store.",
        live.hash,
        counted(live.bucket_count, "bucket"),
        counted(live.key_count, "key")
    )))];
    blocks.extend(histogram(&live.chains));
    if let Some(warning) = warning(&live.chains) {
        let remedy = ". Take another hash function: `splitpoint lab recommend`";
        blocks.push(Block::Warning(Line::sentence(&(warning + remedy))));
    }
    blocks
}

/// Returns the histogram, and what it comes to.
pub(super) fn histogram(chains: &ChainHistogram) -> [Block; 2] {
    [Block::Table(rows(&chains.rows)), Block::Table(means(chains))]
}

/// Says which chains chance does not explain, if there are any.
pub fn warning(chains: &ChainHistogram) -> Option<String> {
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

fn means(chains: &ChainHistogram) -> Table {
    let fullest = match chains.beyond_chance_count {
        0 => p_is(chains.longest_p),
        _ => "not by chance: see below".to_string(),
    };
    let mut table = Table::new("What they cost, beside the ideal");
    table = table.words([""]).numbers(["measured", "ideal"]).words([""]);
    for (name, measured, ideal) in [
        ("lines looked at, hit", chains.probes_hit, chains.probes_hit_ideal),
        ("lines looked at, miss", chains.probes_miss, chains.probes_miss_ideal),
    ] {
        table.push(cells![name, fixed(measured, 3), fixed(ideal, 3), "mean"]);
    }
    let ideal = fixed(chains.longest_ideal, 1);
    table.push(cells!["keys in fullest bucket", chains.longest, ideal, fullest]);
    table
}

fn rows(rows: &[ChainRow]) -> Table {
    let mut table = Table::new("Buckets by the number of their keys, beside the ideal");
    table = table.numbers(["size", "buckets", "keys", "sum-pct", "ideal"]);
    // Sizes that no bucket has and that are not to be expected say nothing.
    let rows: Vec<ChainRow> = rows.iter().filter(|row| is_seen(row)).copied().collect();
    let (shown, rest) = rows.split_at(rows.len().min(ROWS_MAX));
    let mut push = |row: &ChainRow, size: String| {
        let (measured, ideal) = (row.bucket_count as f64, row.ideal_bucket_count);
        table.push_bar(
            cells![
                size,
                row.bucket_count,
                row.item_count,
                fixed(row.cumulative_percent, 2),
                expected(ideal)
            ],
            Bar { measured, ideal, band: None },
        );
    };
    for row in shown {
        push(row, grouped(row.size));
    }
    if let Some(first) = rest.first() {
        let sum = rest.iter().skip(1).fold(*first, |sum, row| ChainRow {
            bucket_count: sum.bucket_count + row.bucket_count,
            item_count: sum.item_count + row.item_count,
            ideal_bucket_count: sum.ideal_bucket_count + row.ideal_bucket_count,
            cumulative_percent: row.cumulative_percent,
            ..sum
        });
        push(&sum, format!("{}+", first.size));
    }
    table
}
