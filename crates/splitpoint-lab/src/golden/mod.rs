//! Golden results: published figures, computed again.
//!
//! # Invariants
//!
//! - A row's `computed` comes from the same functions that measure a user's keys.
//! - Nothing is corrected silently: where a published text slips, a [`Slip`] says so.

use serde::Serialize;

use crate::Specimen;
use crate::reduction::Reduction;
use crate::specimen::{jhash, linux};

mod bacik;
mod classics;
mod lever;
mod sizes;
mod slips;
mod vectors;

pub use classics::word_rows;
pub(crate) use lever::Histogram;
pub use slips::{Slip, slips};

/// One published figure beside what this library computes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The text or the code that it is from.
    pub source: &'static str,
    /// What the figure is of.
    pub what: String,
    /// The figure as published.
    pub published: String,
    /// The figure as computed.
    pub computed: String,
    /// Whether the two are the same.
    pub is_equal: bool,
}

impl Row {
    fn new(
        source: &'static str,
        what: impl Into<String>,
        published: impl Into<Figure>,
        computed: impl Into<Figure>,
    ) -> Self {
        let (Figure(published), Figure(computed)) = (published.into(), computed.into());
        let is_equal = published == computed;
        Self { source, what: what.into(), published, computed, is_equal }
    }
}

/// A figure as it is printed.
struct Figure(String);

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Self(count.to_string())
    }
}

impl From<&str> for Figure {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Figure {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// Computes every golden result.
///
/// # Cost
///
/// About a second.
pub fn rows() -> Vec<Row> {
    let mut rows = hash_vectors();
    rows.extend(integer_vectors());
    rows.extend(bucket_vectors());
    rows.extend(bacik::rows());
    rows.extend(lever::rows());
    rows.extend(sizes::rows());
    rows.extend(lint());
    rows.extend(classics::rows());
    rows
}

/// Returns the rows of Lever's histograms and of the tables of 2.2.16.
pub(crate) fn lever_rows() -> Vec<Row> {
    let mut rows = lever::rows();
    rows.extend(sizes::rows());
    rows
}

/// Returns the rows of Bacik's keys.
pub(crate) fn bacik_rows() -> Vec<Row> {
    bacik::rows()
}

fn hash_vectors() -> Vec<Row> {
    let of_vector = |&(name, seed, hashes): &vectors::Vector| {
        let specimen = Specimen::by_name(name).expect("the vector names a function");
        let what = |key: &str| match seed {
            0 => format!("{name} of {key:?}"),
            seed => format!("{name} of {key:?}, seed {seed:x}"),
        };
        let row = |(key, hash): (&&str, &u64)| {
            let computed = specimen.hash(key.as_bytes(), seed);
            Row::new("vectors", what(key), format!("{hash:x}"), format!("{computed:x}"))
        };
        vectors::KEYS.iter().zip(hashes).map(row).collect::<Vec<_>>()
    };
    let mut rows: Vec<Row> = vectors::VECTORS.iter().flat_map(of_vector).collect();
    for (name, key, hash) in vectors::OTHER_VECTORS {
        let specimen = Specimen::by_name(name).expect("the vector names a function");
        let what = format!("{name} of the bytes {key:x?}");
        let computed = specimen.hash(key, 0);
        rows.push(Row::new("vectors", what, format!("{hash:x}"), format!("{computed:x}")));
    }
    rows
}

fn integer_vectors() -> Vec<Row> {
    let row = |what, published: u64, computed: u64| {
        Row::new("vectors", what, format!("{published:x}"), format!("{computed:x}"))
    };
    let hash_32 = |golden| u64::from(linux::hash_32(0x1234_5678, golden, 16));
    let hash_64 = |golden| linux::hash_64(0x1234_5678_9abc_def0, golden, 32);
    vec![
        row("hash_32 of 12345678 to 16 bits", 0x7786, hash_32(linux::GOLDEN_32)),
        row("hash_32 to 4.5 of 12345678 to 16 bits", 0xb5fc, hash_32(linux::GOLDEN_32_OLD)),
        row("hash_64 of 123456789abcdef0 to 32 bits", 0x36c5_8486, hash_64(linux::GOLDEN_64)),
        row(
            "hash_64 to 4.5 of 123456789abcdef0 to 32 bits",
            0x9cd1_eb85,
            hash_64(linux::GOLDEN_64_OLD),
        ),
        row("jhash2 of the words 1, 2", 0x8b4c_7979, u64::from(jhash::jhash2(&[1, 2], 0))),
        row("jhash_1word of 1", 0x72a8_2a9b, u64::from(jhash::jhash2(&[1], 0))),
    ]
}

/// The bucket in a table of `2^bits` that a function puts `key` into.
fn bucket_of(name: &str, key: &[u8], reduction: Option<Reduction>, bits: u32) -> u64 {
    let specimen = Specimen::by_name(name).expect("the vector names a function");
    let reduction = reduction
        .or(specimen.historic_reduction())
        .expect("the function has a reduction of its own");
    let reducer =
        reduction.prepare(specimen.width_bits(), 1 << bits).expect("the table suits the reduction");
    reducer.bucket_of(specimen.hash(key, 0))
}

fn bucket_vectors() -> Vec<Row> {
    vectors::BUCKETS
        .iter()
        .map(|&(name, reduction, fields, text, bits, bucket)| {
            let mut key: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
            key.extend_from_slice(text.as_bytes());
            let manner = reduction.map_or_else(String::new, |manner| format!(", {manner}"));
            let what = format!("{name}{manner}, {bits} bits, of {fields:x?} {text}");
            let computed = bucket_of(name, &key, reduction, bits);
            Row::new("2.2 buckets", what, format!("{bucket:x}"), format!("{computed:x}"))
        })
        .collect()
}

/// Reductions whose shift and bits add up to more than the word has.
fn lint() -> Vec<Row> {
    let share = |shift: u32, bits: u32| {
        let reducer = Reduction::Shift(shift).prepare(32, 1 << bits).expect("a power of two");
        let count = reducer.lint().map_or(1 << bits, |lint| lint.reachable_count);
        format!("{} %", 100.0 * count as f64 / (1_u64 << bits) as f64)
    };
    vec![
        Row::new("reduction lint", "mult, shift 17, 2^17 buckets: reached", "25 %", share(17, 17)),
        Row::new("reduction lint", "mult, shift 17, 2^15 buckets: reached", "100 %", share(17, 15)),
        Row::new("reduction lint", "mult, shift 11, 2^21 buckets: reached", "100 %", share(11, 21)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_golden_result_is_met() {
        let rows = rows();
        let different: Vec<&Row> = rows.iter().filter(|row| !row.is_equal).collect();
        assert!(different.is_empty(), "{different:#?}");
        assert!(rows.len() > 180, "{} rows", rows.len());
    }

    #[test]
    fn rows_that_differ_are_seen() {
        assert!(!Row::new("a", "b", 1, 2).is_equal);
        assert!(Row::new("a", "b", 2, "2").is_equal);
    }
}
