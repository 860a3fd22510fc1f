//! The chain histogram of the store as the lab saves it: one type for live tables and measured
//! ones.
//!
//! [`ChainHistogram`] and its [`ChainRow`] are the engine's, which knows nothing of serialization;
//! their saved form is written here, once, for `splitpoint stat`, for reports and for studies.
//! For a field: `#[serde(with = "splitpoint_lab::chains::rows")]`.

use serde::{Deserialize, Serialize};
use splitpoint::stats::{ChainHistogram, ChainRow};

/// One row, in Lever's columns and the ideal's.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ChainRow")]
struct RowForm {
    size: u64,
    #[serde(rename = "buckets")]
    bucket_count: u64,
    #[serde(rename = "keys")]
    item_count: u64,
    cumulative_percent: f64,
    #[serde(rename = "ideal_buckets")]
    ideal_bucket_count: f64,
}

/// The whole histogram.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ChainHistogram")]
struct HistogramForm {
    #[serde(with = "rows")]
    rows: Vec<ChainRow>,
    probes_hit: f64,
    probes_hit_ideal: f64,
    probes_miss: f64,
    probes_miss_ideal: f64,
    longest: u64,
    longest_ideal: f64,
    longest_p: f64,
    longest_by_chance: u64,
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
