//! A store in use: a sample of its chains, and what lookups have cost since an earlier look.

use std::time::Duration;

use serde::Serialize;
use splitpoint::stats::{ChainHistogram, Lookups, Sample, Stats, WriterState};

use crate::chains::histogram;

/// What a look at a store has found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LiveStore {
    /// Version of the form: 1.
    pub schema: u32,
    /// The file or the URL.
    pub store: String,
    /// `writing`, `between_turns`, `closed` or `killed`; null if the access method does not tell.
    pub writer: Option<&'static str>,
    /// Keys.
    pub record_count: u64,
    /// Buckets.
    pub bucket_count: u64,
    /// Buckets that were looked at.
    pub sampled_bucket_count: u64,
    /// Keys in them.
    pub sampled_key_count: u64,
    /// Bytes of log since the store was created: they grow with each change.
    pub log_bytes: u64,
    /// Whether a handle that counts its lookups is open.
    pub is_counting: bool,
    /// The lookups of all handles that count since the look before; null without one.
    pub lookups: Option<LiveLookups>,
    /// The chains that were looked at, beside the ideal of their shape; probes are lines of 64 bytes.
    #[serde(with = "histogram")]
    pub chains: ChainHistogram,
}

/// Lookups of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LiveLookups {
    /// Its length in seconds.
    pub seconds: f64,
    /// Lookups.
    pub lookup_count: u64,
    /// Those that found their key.
    pub hit_count: u64,
    /// Records that they compared.
    pub compared_count: u64,
    /// Lines of the index that they read.
    pub line_count: u64,
    /// Lookups a second.
    pub per_second: f64,
    /// Share of them that found their key; 0 if there was none.
    pub hit_share: f64,
    /// Records compared in vain by a lookup: the iterations of Lever's patch.
    pub in_vain_per_lookup: f64,
    /// Lines of the index read by a lookup.
    pub lines_per_lookup: f64,
}

impl LiveStore {
    /// Takes a sample of a store in use.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// use splitpoint_lab::live_store::LiveStore;
    ///
    /// let db = splitpoint::Options::new().instrument(true).in_memory()?;
    /// db.put("key", "value")?;
    /// let live = LiveStore::of_sample("mem:", &db.sample(64, 0)?, None);
    /// assert_eq!((live.record_count, live.is_counting), (1, true));
    /// # Ok(())
    /// # }
    /// ```
    pub fn of_sample(store: &str, sample: &Sample, lookups: Option<LiveLookups>) -> Self {
        let writer = match sample.writer {
            WriterState::Writing => Some("writing"),
            WriterState::BetweenTurns => Some("between_turns"),
            WriterState::Closed => Some("closed"),
            WriterState::Killed => Some("killed"),
            _ => None,
        };
        Self {
            schema: 1,
            store: store.to_owned(),
            writer,
            record_count: sample.record_count,
            bucket_count: sample.geometry.bucket_count(),
            sampled_bucket_count: sample.bucket_count,
            sampled_key_count: sample.key_count,
            log_bytes: sample.log_bytes,
            is_counting: sample.lookups.is_some_and(|lookups| lookups.is_counting),
            lookups,
            chains: sample.chains.clone(),
        }
    }

    /// Takes the counts of a table of another access method, which are of all its buckets.
    pub fn of_stats(store: &str, stats: &Stats) -> Self {
        let sum =
            |of: fn(&splitpoint::stats::ChainRow) -> u64| stats.chains.rows.iter().map(of).sum();
        let bucket_count = sum(|row| row.bucket_count);
        Self {
            schema: 1,
            store: store.to_owned(),
            writer: None,
            record_count: stats.record_count,
            bucket_count,
            sampled_bucket_count: bucket_count,
            sampled_key_count: sum(|row| row.item_count),
            log_bytes: stats.log_bytes,
            is_counting: false,
            lookups: None,
            chains: stats.chains.clone(),
        }
    }

    /// Returns the lines that an ideal hash would have a lookup read, with as many hits.
    pub fn lines_per_lookup_ideal(&self) -> Option<f64> {
        let LiveLookups { hit_share, .. } = self.lookups?;
        let ChainHistogram { probes_hit_ideal, probes_miss_ideal, .. } = self.chains;
        Some(hit_share * probes_hit_ideal + (1.0 - hit_share) * probes_miss_ideal)
    }
}

impl LiveLookups {
    /// Returns what the lookups of an interval have cost.
    pub fn of(lookups: &Lookups, interval: Duration) -> Self {
        let Lookups { lookup_count, hit_count, compared_count, line_count } = *lookups;
        let each = |count: u64| count as f64 / lookup_count.max(1) as f64;
        Self {
            seconds: interval.as_secs_f64(),
            lookup_count,
            hit_count,
            compared_count,
            line_count,
            per_second: lookup_count as f64 / interval.as_secs_f64().max(f64::MIN_POSITIVE),
            hit_share: each(hit_count),
            in_vain_per_lookup: each(compared_count.saturating_sub(hit_count)),
            lines_per_lookup: each(line_count),
        }
    }

    /// Returns the counts themselves.
    pub fn counts(&self) -> Lookups {
        let Self { lookup_count, hit_count, compared_count, line_count, .. } = *self;
        Lookups { lookup_count, hit_count, compared_count, line_count }
    }
}
