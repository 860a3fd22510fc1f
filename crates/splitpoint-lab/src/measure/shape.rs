//! Overviews of the table: buckets in the order of their addresses, and keys by bucket size.

use serde::{Deserialize, Serialize};
use splitpoint::stats::ChainRow;

use crate::partial::PartialStats;

/// Cells of a strip, at most.
pub const CELLS_MAX: u64 = 1024;
/// Points of a curve, at most.
const POINTS_MAX: usize = 256;

/// The keys of the buckets in the order of their addresses, summed into cells. Stripes show a
/// structure of the keys that the hash did not break.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strip {
    /// Buckets of each cell; the last may have fewer.
    pub cell_buckets: u64,
    /// Keys of each cell.
    pub keys: Vec<u64>,
    /// Buckets of each cell that hold a key.
    pub used: Vec<u64>,
}

impl Strip {
    pub(super) fn new(stats: &PartialStats) -> Self {
        let bucket_count = stats.setup().reducer().bucket_count();
        let cell_buckets = bucket_count.div_ceil(CELLS_MAX);
        let cells = bucket_count.div_ceil(cell_buckets) as usize;
        let (mut keys, mut used) = (vec![0; cells], vec![0; cells]);
        for (bucket, size) in (0_u64..).zip(stats.chains()) {
            let cell = (bucket / cell_buckets) as usize;
            keys[cell] += size;
            used[cell] += u64::from(size > 0);
        }
        Self { cell_buckets, keys, used }
    }
}

/// Share of the keys in buckets up to a size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemShare {
    /// Keys of the bucket.
    pub size: u64,
    /// Share of the keys in buckets up to this size.
    pub share: f64,
    /// The same for an ideal hash.
    pub share_ideal: f64,
}

/// Returns the distribution of the sizes of the keys' buckets, at up to 256 sizes.
pub(super) fn item_shares(rows: &[ChainRow]) -> Vec<ItemShare> {
    let key_count: u64 = rows.iter().map(|row| row.item_count).sum();
    if key_count == 0 {
        return Vec::new();
    }
    let (mut found, mut ideal) = (0_u64, 0.0);
    let mut points: Vec<ItemShare> = rows
        .iter()
        .map(|row| {
            found += row.item_count;
            ideal += row.ideal_bucket_count * row.size as f64;
            ItemShare {
                size: row.size,
                share: found as f64 / key_count as f64,
                share_ideal: (ideal / key_count as f64).min(1.0),
            }
        })
        .collect();
    let step = points.len().div_ceil(POINTS_MAX);
    let last = points.len() - 1;
    let mut at = 0..;
    points.retain(|_| at.next().is_some_and(|at| at % step == 0 || at == last));
    points
}
