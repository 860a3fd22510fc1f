//! What lookups would cost with an ideal hash.
//!
//! # Source
//!
//! Knuth, The Art of Computer Programming 3, 6.4; Larson, "Dynamic hash tables", CACM 1988, for the
//! two kinds of buckets of a linear-hashed table.

use splitpoint::linear::Geometry;
use splitpoint::stats::Ideal;
use splitpoint_legacy::algorithm::hsearch::{Collisions, Hashing, Hsearch, Options, Order};
use splitpoint_legacy::algorithm::{Algorithm as _, Footprint, StoreMode, Variant};

use crate::probing::{linear_hit, linear_miss, uniform_hit, uniform_miss};
use crate::random::Random;

/// Bytes of a page of db 1.85 that are neither pairs nor their offsets, with those of the entry for
/// an overflow page.
const PAGE_META_BYTES: f64 = 10.0;

/// Most slots of a simulated table.
const SIMULATED_SLOTS_MAX: u64 = 1 << 14;
/// Fewest keys of all simulated tables together: one small table tells little.
const SIMULATED_KEYS_MIN: u64 = 1 << 14;

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
pub(super) fn of(variant: Variant, n: u64, footprint: &Footprint, pair_bytes_mean: f64) -> Cost {
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
            let slots = (footprint.page_bytes as f64 - PAGE_META_BYTES) / (pair_bytes_mean + 4.0);
            // A pair that exceeds a page has pages of its own, which no ideal of buckets counts.
            if slots < 1.0 {
                return Cost::default();
            }
            let slots = slots as u64;
            let ideal = Ideal::new(Geometry::with_bucket_count(m), n);
            Cost::new(ideal.probes_hit(slots), ideal.probes_miss(slots))
        }
        _ => Cost::default(),
    }
}

/// Returns the mean keys of the bucket that a hash leads to: a divided bucket has half of them, and
/// half as many hashes lead there.
fn keys_of_bucket(geometry: Geometry, n: u64) -> f64 {
    let whole = 1.0 / (1_u64 << geometry.level()) as f64;
    let divided = 2.0 * geometry.split() as f64;
    let others = geometry.bucket_count() as f64 - divided;
    n as f64 * (divided * whole * whole / 4.0 + others * whole * whole)
}

fn of_hsearch(hashing: Hashing, collisions: Collisions, n: u64, m: u64) -> Cost {
    let load = n as f64 / m as f64;
    let chain_hit = 1.0 + (n - 1) as f64 / (2 * m) as f64;
    match (collisions, hashing) {
        (Collisions::Open, Hashing::Mult) => Cost::new(uniform_hit(n, m), uniform_miss(n, m)),
        // All steps are 1, so that Brent's rearrangement has nothing to gain.
        (Collisions::Open | Collisions::Brent, Hashing::Div) => {
            Cost::new(linear_hit(n, m), linear_miss(n, m))
        }
        // Moves change which keys the slots have, not which slots are empty.
        (Collisions::Brent, Hashing::Mult) => Cost::new(brent_hit(n, m), uniform_miss(n, m)),
        (Collisions::Chained(Order::Start), _) => Cost::new(chain_hit, load),
        // A sorted chain of k ends at each of its k + 1 gaps as likely: k / 2 + k / (k + 1) compared.
        (Collisions::Chained(_), _) => {
            Cost::new(chain_hit, load / 2.0 + 1.0 - (1.0 - (-load).exp()) / load)
        }
    }
}

/// Returns the mean probes of a hit after Brent's rearrangement, of tables of random digests at the same
/// load. Knuth's series, 1 + a/2 + a^3/4 + a^4/15 - ... for a load of `a`, is that of large tables.
fn brent_hit(n: u64, m: u64) -> f64 {
    let slots = m.min(SIMULATED_SLOTS_MAX);
    let keys = ((n as f64 * slots as f64 / m as f64).round() as u64).clamp(1, slots - 1);
    // A key is its digest.
    let digest = |key: &[u8]| key.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let (hashing, collisions) = (Hashing::Mult, Collisions::Brent);
    let options = Options { hashing, collisions, compare: None, digest };
    let mut random = Random::new(1991);
    let (mut probes, mut hits) = (0, 0);
    while hits < SIMULATED_KEYS_MIN {
        let mut table = Hsearch::new(options, slots - 1);
        let stored: Vec<[u8; 8]> = (0..keys).map(|_| random.next().to_le_bytes()).collect();
        for key in &stored {
            // There is room for all.
            let _ = table.store(key, b"", StoreMode::Insert);
        }
        let before = table.counts().probes;
        for key in &stored {
            let _ = table.fetch(key);
        }
        probes += table.counts().probes - before;
        hits += keys;
    }
    probes as f64 / hits as f64
}

#[cfg(test)]
mod tests {
    use splitpoint_legacy::algorithm::Parameters;

    use super::*;

    /// At a load of 0.747 a hit takes 1.84 probes of double hashing.
    #[test]
    fn the_ideal_of_24474_words_in_2_to_the_15_is_known() {
        let open = of_hsearch(Hashing::Mult, Collisions::Open, 24_474, 1 << 15);
        assert!((open.hit.unwrap() - 1.84).abs() < 0.005, "{open:?}");
        assert!((open.miss.unwrap() - 3.95).abs() < 0.01, "{open:?}");
        let brent = of_hsearch(Hashing::Mult, Collisions::Brent, 24_474, 1 << 15);
        assert!((1.50..1.54).contains(&brent.hit.unwrap()), "{brent:?}");
        assert_eq!(brent.miss, open.miss);
    }

    #[test]
    fn brent_gains_nothing_with_steps_of_one() {
        let [brent, open] = [Collisions::Brent, Collisions::Open]
            .map(|collisions| of_hsearch(Hashing::Div, collisions, 100, 128));
        assert_eq!((brent.hit, brent.miss), (open.hit, open.miss));
    }

    #[test]
    fn the_ideal_of_a_small_table_is_the_mean_of_many() {
        let [small, large] = [(96, 128), (12_288, 16_384)].map(|(n, m)| brent_hit(n, m));
        assert!((small - large).abs() < 0.05, "{small} and {large}");
        // Tables with as many keys as they take.
        for bits in 1..8 {
            let full = brent_hit((1 << bits) - 1, 1 << bits);
            assert!((1.0..2.5).contains(&full), "{bits}: {full}");
        }
    }

    /// db 1.85 rounds a page of 1,000 bytes up, and gives a pair of 3,000 pages of its own.
    #[test]
    fn the_ideal_of_the_package_is_that_of_its_own_pages() {
        let footprint = |page_bytes| {
            let parameters = Parameters { page_bytes: Some(page_bytes), ..Parameters::default() };
            let mut table = Variant::Hash.create(&parameters).unwrap();
            for number in 0..2000_u32 {
                table.store(&number.to_le_bytes(), b"value", StoreMode::Insert).unwrap();
            }
            table.footprint()
        };
        let [odd, even] = [1000, 1024].map(footprint);
        assert_eq!((odd.page_bytes, odd), (1024, even));
        assert!(of(Variant::Hash, 2000, &odd, 9.0).hit.is_some());
        assert!(of(Variant::Hash, 2000, &odd, 3000.0).hit.is_none());
    }

    #[test]
    fn a_half_divided_table_costs_more_than_its_mean_load() {
        let whole = keys_of_bucket(Geometry::with_bucket_count(64), 640);
        assert!((whole - 10.0).abs() < 1e-9);
        let halfway = keys_of_bucket(Geometry::with_bucket_count(96), 960);
        assert!(halfway > 11.0 && halfway < 12.0, "{halfway}");
    }
}
