//! Bacik's keys of 2014: a million names that Linux 3.10 put into 12,628 buckets.
//!
//! # Source
//!
//! Bacik and Torvalds, "vfs: fix bad hashing of dentries", September 2014: the keys `a0` to
//! `a999999` in a table of 2^24 dentries.

use super::Row;
use crate::occupancy::Occupancy;
use crate::{Setup, Specimen};

const SOURCE: &str = "Bacik 2014";
const BITS: u32 = 24;
const KEY_COUNT: u64 = 1_000_000;

pub(super) fn rows() -> Vec<Row> {
    let keys: Vec<String> = (0..KEY_COUNT).map(|number| format!("a{number}")).collect();
    let [older, newer, mended] =
        ["linux-r5-name", "linux-3.10-name", "linux-3.17-name"].map(|name| spread(name, &keys));
    let row = |what: &str, published: u64, computed| Row::new(SOURCE, what, published, computed);
    let dupes = |spread: &Occupancy| spread.key_count() - spread.at_least(1);
    // His program looks for the longest among the buckets that have dupes, and says 0 without.
    let crowded = |spread: &Occupancy| if spread.longest() > 1 { spread.longest() } else { 0 };
    let crowd = newer.bucket_percentiles();
    let ideal_dupes = KEY_COUNT as f64 - (2_f64.powi(24) - newer.ideal().bucket_count(0));
    vec![
        row("old hash: buckets used", 1_000_000, older.at_least(1)),
        row("old hash: dupes", 0, dupes(&older)),
        row("old hash: most keys in a bucket with dupes", 0, crowded(&older)),
        row("new hash: buckets used", 12_628, newer.at_least(1)),
        row("new hash: dupes", 987_372, dupes(&newer)),
        row("new hash: most keys in a bucket with dupes", 900, crowded(&newer)),
        row("new hash: buckets with more than one", 11_400, newer.at_least(2)),
        row("new hash: p50 of buckets in use", 30, crowd.p50),
        row("new hash: p90 of buckets in use", 240, crowd.p90),
        row("new hash: p99 of buckets in use", 567, crowd.p99),
        row("mended hash: dupes", 254_260, dupes(&mended)),
        Row::new(SOURCE, "dupes of an ideal hash", "29219", format!("{ideal_dupes:.0}")),
    ]
}

/// Spreads the names over the table by the hash's own reduction; the parent's address, a constant
/// here, is left out.
fn spread(name: &str, keys: &[String]) -> Occupancy {
    let specimen = Specimen::by_name(name).expect("a name of this library");
    let reduction = specimen.historic_reduction().expect("names of Linux have one");
    let setup = Setup::new(specimen, 0, reduction, 1 << BITS).expect("a power of two");
    setup.sample_hashes(32).count(keys.iter().map(String::as_bytes)).occupancy()
}
