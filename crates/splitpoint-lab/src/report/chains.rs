//! The chains of a store's own table, beside the ideal.

use splitpoint::stats::{ChainHistogram, ChainRow};

use super::number::{counted, expected, fixed, grouped, p_is};
use super::sizes::is_seen;
use crate::chains::LiveTable;
use crate::document::{Bar, Block, Line, Table, cells};

/// Rows that are shown one by one; longer chains share the last row.
const ROWS_MAX: usize = 32;
/// Slots of a line: docs/format.md.
const LINE_SLOTS: u64 = 7;
/// From which share of the lines of packed chains on a hit says that they are not packed.
const LOOSE_MIN: f64 = 1.01;

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
pub(super) fn histogram(chains: &ChainHistogram) -> Vec<Block> {
    let tables = [Block::Table(rows(&chains.rows)), Block::Table(means(chains))];
    tables.into_iter().chain(loose(chains).map(Block::Prose)).collect()
}

/// Says that the hash is not to blame for lines that only deletes have made more.
fn loose(chains: &ChainHistogram) -> Option<Line> {
    let packed = packed_probes_hit(&chains.rows);
    (chains.probes_hit > packed * LOOSE_MIN).then(|| {
        Line::from(format!(
            "Deletes have left empty slots inside the chains. Without them a hit would look at {} lines. \
             Puts of new keys fill them; a rehash packs all chains.",
            fixed(packed, 3)
        ))
    })
}

/// Returns how many lines a hit would look at if only the last line of each chain had empty slots.
fn packed_probes_hit(rows: &[ChainRow]) -> f64 {
    let key_count: u64 = rows.iter().map(|row| row.item_count).sum();
    // The lines that the keys of one chain are in, added up.
    let lines_of = |size: u64| {
        let full = size / LINE_SLOTS;
        u128::from(LINE_SLOTS * full * (full + 1) / 2 + size % LINE_SLOTS * (full + 1))
    };
    let lines = rows.iter().map(|row| u128::from(row.bucket_count) * lines_of(row.size));
    if key_count == 0 { 1.0 } else { lines.sum::<u128>() as f64 / key_count as f64 }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size: u64, bucket_count: u64) -> ChainRow {
        ChainRow {
            size,
            bucket_count,
            item_count: size * bucket_count,
            cumulative_percent: 0.0,
            ideal_bucket_count: 0.0,
        }
    }

    #[test]
    fn packed_chains_have_empty_slots_in_their_last_lines_alone() {
        let full = [row(0, 5), row(7, 3)];
        assert_eq!((packed_probes_hit(&[]), packed_probes_hit(&full)), (1.0, 1.0));
        for size in 1..100 {
            let expected: u64 = (1..=size).map(|key: u64| key.div_ceil(LINE_SLOTS)).sum();
            let found = packed_probes_hit(&[row(size, 3)]);
            assert!((found - expected as f64 / size as f64).abs() < 1e-12, "{size}: {found}");
        }
    }

    #[test]
    fn a_store_of_which_most_was_deleted_says_so_and_others_do_not() {
        let db = splitpoint::Options::new().seed(7).in_memory().expect("a table");
        let said = |db: &splitpoint::Db| {
            let stats = db.stats().expect("it has some");
            histogram(&stats.chains).len() > 2
        };
        (0..20_000_u32).for_each(|key| db.put(key.to_le_bytes(), "").expect("it is stored"));
        assert!(!said(&db));
        (0..12_000_u32).for_each(|key| assert!(db.delete(key.to_le_bytes()).expect("it is there")));
        assert!(said(&db));
    }
}
