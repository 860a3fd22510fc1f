//! What lookups would cost with an ideal hash.
//!
//! # Source
//!
//! Knuth, The Art of Computer Programming 3, 6.4; Larson, "Dynamic hash tables", CACM 1988, for the
//! two kinds of buckets of a linear-hashed table.

use splitpoint::linear::Geometry;
use splitpoint::stats::Ideal;
use splitpoint_legacy::algorithm::hsearch::{Collisions, Hashing, Hsearch, Options, Order};
use splitpoint_legacy::algorithm::{
    Algorithm as _, Footprint, Parameters, StoreMode, Variant, hash,
};

use crate::probing::{linear_hit, linear_miss, uniform_hit, uniform_miss};
use crate::random::Random;

/// Bytes of a page of db 1.85 that are neither pairs nor their offsets, with those of the entry for
/// an overflow page.
const PAGE_META_BYTES: f64 = 10.0;

/// Most slots of a simulated table.
const SIMULATED_SLOTS_MAX: u64 = 1 << 14;

/// Mean probes of lookups, where they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) hit: Option<f64>,
    pub(super) miss: Option<f64>,
}

impl Cost {
    fn new(hit: f64, miss: f64) -> Self {
        Self { hit: Some(hit), miss: Some(miss) }
    }
}

/// Returns the cost of a variant with `n` keys in a table of this size.
pub(super) fn of(
    variant: Variant,
    n: u64,
    footprint: &Footprint,
    parameters: &Parameters,
    pair_bytes_mean: f64,
) -> Cost {
    let m = footprint.place_count;
    if n == 0 {
        return Cost::default();
    }
    match variant {
        // One page, whatever the keys: the idea of dbm.
        Variant::Dbm | Variant::Ndbm | Variant::Sdbm => Cost::new(1.0, 1.0),
        // A bucket and a record; of a miss only the bucket, but for keys with one hash.
        Variant::Gdbm => Cost::new(2.0, 1.0),
        Variant::Hsearch { hashing, collisions, .. } => of_hsearch(hashing, collisions, n, m),
        Variant::Dynahash => {
            let geometry = Geometry::with_bucket_count(m);
            Cost::new(Ideal::new(geometry, n).probes_hit(1), keys_of_bucket(geometry, n))
        }
        Variant::Hash => {
            let page_bytes = parameters.page_bytes.unwrap_or(hash::PAGE_BYTES_DEFAULT as usize);
            let slots = (page_bytes as f64 - PAGE_META_BYTES) / (pair_bytes_mean + 4.0);
            let slots = (slots as u64).max(1);
            let ideal = Ideal::new(Geometry::with_bucket_count(m), n);
            Cost::new(ideal.probes_hit(slots), ideal.probes_miss(slots))
        }
        _ => Cost::default(),
    }
}

/// Returns the mean keys of the bucket that a hash leads to: a divided bucket has half of them, and
/// half as many hashes lead there.
fn keys_of_bucket(geometry: Geometry, n: u64) -> f64 {
    let whole = 0.5_f64.powi(geometry.level() as i32);
    let divided = 2.0 * geometry.split() as f64;
    let others = geometry.bucket_count() as f64 - divided;
    n as f64 * (divided * whole * whole / 4.0 + others * whole * whole)
}

fn of_hsearch(hashing: Hashing, collisions: Collisions, n: u64, m: u64) -> Cost {
    let load = n as f64 / m as f64;
    let chain_hit = 1.0 + (n - 1) as f64 / (2 * m) as f64;
    match (collisions, hashing) {
        (Collisions::Open, Hashing::Mult) => Cost::new(uniform_hit(n, m), uniform_miss(n, m)),
        (Collisions::Open, Hashing::Div) => Cost::new(linear_hit(n, m), linear_miss(n, m)),
        (Collisions::Brent, _) => simulated(hashing, n, m),
        (Collisions::Chained(Order::Start), _) => Cost::new(chain_hit, load),
        // A sorted chain of k ends at each of its k + 1 gaps as likely: k / 2 + k / (k + 1) compared.
        (Collisions::Chained(_), _) => {
            Cost::new(chain_hit, load / 2.0 + 1.0 - (1.0 - (-load).exp()) / load)
        }
    }
}

/// Returns the cost in a table of random digests at the same load: no formula is known for Brent's
/// rearrangement in a table that is not full.
fn simulated(hashing: Hashing, n: u64, m: u64) -> Cost {
    let slots = m.min(SIMULATED_SLOTS_MAX);
    let keys = ((n as f64 * slots as f64 / m as f64).round() as u64).clamp(1, slots);
    // A key is its digest.
    let digest = |key: &[u8]| key.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let options = Options { hashing, collisions: Collisions::Brent, compare: None, digest };
    let mut table = Hsearch::new(options, slots - 1);
    let mut random = Random::new(1991);
    let mut draw = || random.next().to_le_bytes();
    let stored: Vec<[u8; 8]> = (0..keys).map(|_| draw()).collect();
    for key in &stored {
        if table.store(key, b"", StoreMode::Insert).is_err() {
            return Cost::default();
        }
    }
    let mut mean = |lookups: &mut dyn Iterator<Item = [u8; 8]>| {
        let (before, mut count) = (table.counts().probes, 0);
        for key in lookups {
            let _ = table.fetch(&key);
            count += 1;
        }
        (table.counts().probes - before) as f64 / f64::from(count.max(1))
    };
    let hit = mean(&mut stored.iter().copied());
    let miss = mean(&mut (0..keys.min(4096)).map(|_| draw()));
    Cost::new(hit, miss)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At a load of 0.747 a hit takes 1.84 probes of double hashing.
    #[test]
    fn the_ideal_of_24474_words_in_2_to_the_15_is_known() {
        let open = of_hsearch(Hashing::Mult, Collisions::Open, 24_474, 1 << 15);
        assert!((open.hit.unwrap() - 1.84).abs() < 0.005, "{open:?}");
        assert!((open.miss.unwrap() - 3.95).abs() < 0.01, "{open:?}");
        let brent = of_hsearch(Hashing::Mult, Collisions::Brent, 24_474, 1 << 15);
        assert!(brent.hit.unwrap() < 1.6, "{brent:?}");
    }

    #[test]
    fn a_half_divided_table_costs_more_than_its_mean_load() {
        let whole = keys_of_bucket(Geometry::with_bucket_count(64), 640);
        assert!((whole - 10.0).abs() < 1e-9);
        let halfway = keys_of_bucket(Geometry::with_bucket_count(96), 960);
        assert!(halfway > 11.0 && halfway < 12.0, "{halfway}");
    }
}
