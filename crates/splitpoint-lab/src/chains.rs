//! The chain histogram of the store as the lab saves it: one type for live tables and measured
//! ones.
//!
//! [`ChainHistogram`] and its [`ChainRow`] are the engine's, which knows nothing of serialization;
//! their saved form is written here, once, for `splitpoint stat`, for reports and for studies.
//! For a field: `#[serde(with = "splitpoint_lab::chains::rows")]`.

use serde::{Deserialize, Serialize};
use splitpoint::stats::{ChainHistogram, ChainRow};

/// Buckets of one size, in Lever's columns and the ideal's.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ChainRow")]
struct RowForm {
    /// Keys in each of these buckets.
    size: u64,
    /// Buckets of this size.
    #[serde(rename = "buckets")]
    bucket_count: u64,
    /// Keys in all of them.
    #[serde(rename = "keys")]
    item_count: u64,
    /// Keys in buckets of this size or smaller, in percent of all keys.
    cumulative_percent: f64,
    /// Buckets of this size that an ideal hash gives on average.
    #[serde(rename = "ideal_buckets")]
    ideal_bucket_count: f64,
}

/// How many buckets have how many keys, beside an ideal hash.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ChainHistogram")]
struct HistogramForm {
    /// One row for each size that occurs.
    #[serde(with = "rows")]
    rows: Vec<ChainRow>,
    /// Mean lines that a lookup of a key in the table reads; 0 if there are no keys.
    probes_hit: f64,
    /// The same for an ideal hash.
    probes_hit_ideal: f64,
    /// Mean lines that a lookup of a missing key reads.
    probes_miss: f64,
    /// The same for an ideal hash.
    probes_miss_ideal: f64,
    /// Keys in the fullest bucket.
    longest: u64,
    /// The same for an ideal hash, on average.
    longest_ideal: f64,
    /// Probability that an ideal hash fills a bucket as full.
    longest_p: f64,
    /// Size that no bucket of an ideal hash exceeds, except with a probability below 2^-40.
    longest_by_chance: u64,
    /// Buckets that exceed it.
    #[serde(rename = "beyond_chance")]
    beyond_chance_count: u64,
}

/// Rows of a histogram.
pub mod rows {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use splitpoint::stats::ChainRow;

    use super::RowForm;

    #[derive(Serialize)]
    struct Borrowed<'a>(#[serde(with = "RowForm")] &'a ChainRow);

    #[derive(Deserialize)]
    struct Owned(#[serde(with = "RowForm")] ChainRow);

    /// Saves rows.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(rows: &[ChainRow], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(rows.iter().map(Borrowed))
    }

    /// Reads rows.
    ///
    /// # Errors
    ///
    /// Those of the deserializer.
    pub fn deserialize<'d, D: Deserializer<'d>>(source: D) -> Result<Vec<ChainRow>, D::Error> {
        Ok(Vec::<Owned>::deserialize(source)?.into_iter().map(|Owned(row)| row).collect())
    }
}

/// A histogram.
pub mod histogram {
    use serde::{Deserializer, Serializer};
    use splitpoint::stats::ChainHistogram;

    use super::HistogramForm;

    /// Saves a histogram.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(
        histogram: &ChainHistogram,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        HistogramForm::serialize(histogram, serializer)
    }

    /// Reads a histogram.
    ///
    /// # Errors
    ///
    /// Those of the deserializer.
    pub fn deserialize<'d, D: Deserializer<'d>>(source: D) -> Result<ChainHistogram, D::Error> {
        HistogramForm::deserialize(source)
    }
}

/// The chains of a live store, as they are in its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveTable {
    /// The store's hash function.
    pub hash: String,
    /// Buckets.
    pub bucket_count: u64,
    /// Keys.
    pub key_count: u64,
    /// Its chains beside the ideal of the table's shape; probes are lines of 64 bytes.
    #[serde(with = "histogram")]
    pub chains: ChainHistogram,
}
