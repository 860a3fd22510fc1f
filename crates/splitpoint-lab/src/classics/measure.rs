//! One variant on the keys: what it stores, and what lookups cost.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use serde::Serialize;
use splitpoint_legacy::algorithm::hsearch::Collisions;
use splitpoint_legacy::algorithm::{
    Algorithm, Parameters, Reason, Refusal, StoreMode, Unit, Variant,
};

use super::{Pairs, ideal};
use crate::keys::shown;
use crate::random::Random;

/// Most probes of storing: a table that needs more is so bad that further keys would show nothing
/// new. An array of slots is read faster than a chain.
const ARRAY_PROBES_MAX: u64 = 1_500_000_000;
const CHAIN_PROBES_MAX: u64 = 200_000_000;
/// Most probes of hits, and of misses.
const LOOKUP_PROBES_MAX: u64 = 400_000_000;
/// Most keys that are missed.
const MISSES_MAX: usize = 20_000;
/// Keys between two looks at whether to stop.
const KEYS_PER_LOOK: usize = 256;

/// One variant on the keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassicsRow {
    /// The name of the variant: the module and its options.
    pub name: String,
    /// The module.
    pub module: &'static str,
    /// What a probe is: `pages`, or `probes` of slots and chained keys.
    pub unit: &'static str,
    /// Keys that were stored.
    pub stored_count: u64,
    /// Keys that were given to the table; fewer than all if `unfinished` says so.
    pub tried_count: u64,
    /// Mean probes of a hit.
    pub hit: Option<f64>,
    /// The same for an ideal hash.
    pub hit_ideal: Option<f64>,
    /// Hits that were measured: all, or evenly spaced ones if hits are dear.
    pub hit_count: u64,
    /// Mean probes of a miss.
    pub miss: Option<f64>,
    /// The same for an ideal hash.
    pub miss_ideal: Option<f64>,
    /// Misses that were measured: all, or the first in the order of the file if misses are dear.
    pub miss_count: u64,
    /// Most probes of one of these lookups.
    pub longest: u64,
    /// Buckets, pages or slots of the table.
    pub place_count: u64,
    /// Share of the pages' bytes that pairs take, or keys per slot or bucket.
    pub fill: f64,
    /// Bits of the hash that lead to the deepest bucket.
    pub depth: u32,
    /// Splits because a page was full.
    pub overflow_splits: u64,
    /// Splits because of the fill factor.
    pub fill_splits: u64,
    /// How often the directory doubled.
    pub doublings: u64,
    /// Entries that doublings copied.
    pub copied_entries: u64,
    /// Entries that Brent's rearrangement moved.
    pub moves: u64,
    /// Bytes of the bitmap, trie, directory or array of slots.
    pub index_bytes: u64,
    /// Entries of a directory that name the same bucket as another.
    pub index_copies: u64,
    /// Length of the files, 0 for tables without.
    pub file_bytes: u64,
    /// Bytes of them that were never written.
    pub hole_bytes: u64,
    /// Keys that were not stored, by reason.
    pub failures: Vec<StoreFailure>,
    /// Seconds to store all keys.
    pub store_s: f64,
    /// Seconds of the hits.
    pub hit_s: f64,
    /// Why not all keys were given to the table.
    pub unfinished: Option<String>,
}

/// Keys that a table refused for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoreFailure {
    /// The reason.
    pub reason: &'static str,
    /// The words of the paper, if it names the reason.
    pub in_paper: Option<&'static str>,
    /// Keys that were refused.
    pub key_count: u64,
    /// The first of them, as text.
    pub first_key: String,
    /// What the table said of it.
    pub message: String,
}

/// What became of storing all keys.
#[derive(Default)]
struct Storing {
    /// Places in the pairs of those that were stored.
    stored: Vec<u32>,
    failures: BTreeMap<Reason, StoreFailure>,
    tried_count: u64,
    unfinished: Option<String>,
    seconds: f64,
}

/// What lookups cost.
#[derive(Default)]
struct Lookups {
    count: u64,
    probes: u64,
    longest: u64,
    seconds: f64,
}

impl Lookups {
    fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.probes as f64 / self.count as f64)
    }
}

/// Measures a variant, or returns `None` if it was stopped.
pub(super) fn row(
    pairs: &Pairs<'_>,
    misses: &[Vec<u8>],
    variant: Variant,
    parameters: &Parameters,
    is_stopped: &dyn Fn() -> bool,
) -> splitpoint::Result<Option<ClassicsRow>> {
    let mut parameters = *parameters;
    if variant.module() == "hsearch" && parameters.expected_records.is_none() {
        parameters.expected_records = Some(pairs.len() as u64);
    }
    let mut table = variant.create(&parameters)?;
    let budget = if is_array(variant) { ARRAY_PROBES_MAX } else { CHAIN_PROBES_MAX };
    let storing = store_all(&mut *table, pairs, budget, is_stopped);
    let Some(storing) = storing else { return Ok(None) };
    let counts = table.counts();
    // As many hits as the budget allows, if they cost what storing did.
    let every = (counts.probes / LOOKUP_PROBES_MAX + 1) as usize;
    let hit_keys = storing.stored.iter().step_by(every).map(|&place| pairs[place as usize].0);
    let Some(hits) = look_up(&mut *table, hit_keys, is_stopped) else { return Ok(None) };
    let miss_keys = misses.iter().map(|key| &key[..]);
    let Some(missed) = look_up(&mut *table, miss_keys, is_stopped) else { return Ok(None) };
    let mean_bytes = mean_pair_bytes(pairs);
    let ideal = ideal::of(variant, table.len(), &table.footprint(), mean_bytes);
    Ok(Some(assemble(variant, &*table, storing, [hits, missed], ideal)))
}

/// Returns whether a probe of the variant reads the next element of an array.
fn is_array(variant: Variant) -> bool {
    matches!(variant, Variant::Hsearch { collisions: Collisions::Open | Collisions::Brent, .. })
}

fn mean_pair_bytes(pairs: &Pairs<'_>) -> f64 {
    let bytes: usize = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
    bytes as f64 / pairs.len().max(1) as f64
}

fn store_all(
    table: &mut dyn Algorithm,
    pairs: &Pairs<'_>,
    budget: u64,
    is_stopped: &dyn Fn() -> bool,
) -> Option<Storing> {
    let mut storing = Storing::default();
    let started = Instant::now();
    for (place, (key, value)) in pairs.iter().enumerate() {
        if place.is_multiple_of(KEYS_PER_LOOK) && is_stopped() {
            return None;
        }
        if table.counts().probes > budget {
            let words = format!(
                "stopped at key {place} of {}: storing had taken {budget} probes",
                pairs.len()
            );
            storing.unfinished = Some(words);
            break;
        }
        storing.tried_count += 1;
        match table.store(key, value, StoreMode::Insert) {
            Ok(_) => storing.stored.push(place as u32),
            Err(refusal) => note(&mut storing.failures, key, &refusal),
        }
    }
    storing.seconds = started.elapsed().as_secs_f64();
    Some(storing)
}

fn note(failures: &mut BTreeMap<Reason, StoreFailure>, key: &[u8], refusal: &Refusal) {
    let reason = refusal.reason();
    let failure = failures.entry(reason).or_insert_with(|| StoreFailure {
        reason: reason.name(),
        in_paper: reason.in_paper(),
        key_count: 0,
        first_key: shown(key),
        message: refusal.to_string(),
    });
    failure.key_count += 1;
}

/// Looks up keys within the budget, or returns `None` if it was stopped.
fn look_up<'k>(
    table: &mut dyn Algorithm,
    keys: impl Iterator<Item = &'k [u8]>,
    is_stopped: &dyn Fn() -> bool,
) -> Option<Lookups> {
    let mut lookups = Lookups::default();
    let started = Instant::now();
    let mut last = table.counts().probes;
    for (number, key) in keys.enumerate() {
        if number.is_multiple_of(KEYS_PER_LOOK) && is_stopped() {
            return None;
        }
        if lookups.probes > LOOKUP_PROBES_MAX {
            break;
        }
        // A failure of the package is in the row of what it did not store.
        let _ = table.fetch(key);
        let now = table.counts().probes;
        let probes = now - std::mem::replace(&mut last, now);
        lookups.count += 1;
        lookups.probes += probes;
        lookups.longest = lookups.longest.max(probes);
    }
    lookups.seconds = started.elapsed().as_secs_f64();
    Some(lookups)
}

fn assemble(
    variant: Variant,
    table: &dyn Algorithm,
    storing: Storing,
    [hits, missed]: [Lookups; 2],
    ideal: ideal::Cost,
) -> ClassicsRow {
    let (counts, footprint) = (table.counts(), table.footprint());
    ClassicsRow {
        name: variant.name(),
        module: variant.module(),
        unit: variant.unit().name(),
        stored_count: table.len(),
        tried_count: storing.tried_count,
        hit: hits.mean(),
        hit_ideal: ideal.hit.filter(|_| hits.count > 0),
        hit_count: hits.count,
        miss: missed.mean(),
        miss_ideal: ideal.miss.filter(|_| missed.count > 0),
        miss_count: missed.count,
        longest: hits.longest.max(missed.longest),
        place_count: footprint.place_count,
        fill: footprint.fill,
        depth: footprint.depth,
        overflow_splits: counts.overflow_splits,
        fill_splits: counts.fill_splits,
        doublings: counts.doublings,
        copied_entries: counts.copied_entries,
        moves: counts.moves,
        index_bytes: footprint.index_bytes,
        index_copies: footprint.index_copies,
        file_bytes: footprint.file_bytes,
        hole_bytes: footprint.hole_bytes,
        failures: storing.failures.into_values().collect(),
        store_s: storing.seconds,
        hit_s: hits.seconds,
        unfinished: storing.unfinished,
    }
}

impl ClassicsRow {
    /// Returns whether a probe is a page.
    pub fn has_pages(&self) -> bool {
        self.unit == Unit::Pages.name()
    }
}

/// Returns keys that are not among those of `pairs`, but like them: each is one of them with one more
/// byte, which is drawn from the bytes of all keys.
pub(super) fn misses(pairs: &Pairs<'_>, seed: u64) -> Vec<Vec<u8>> {
    let keys: HashSet<&[u8]> = pairs.iter().map(|(key, _)| *key).collect();
    let mut is_used = [false; 256];
    for byte in pairs.iter().flat_map(|(key, _)| *key) {
        is_used[usize::from(*byte)] = true;
    }
    let mut bytes: Vec<u8> = (0..=255).filter(|&byte| is_used[usize::from(byte)]).collect();
    if bytes.is_empty() {
        bytes.push(b'a');
    }
    let mut random = Random::new(seed);
    let every = pairs.len().div_ceil(MISSES_MAX).max(1);
    let longer = pairs.iter().step_by(every).map(|(key, _)| {
        let byte = bytes[random.below(bytes.len() as u64) as usize];
        [*key, &[byte][..]].concat()
    });
    longer.filter(|key| !keys.contains(&key[..])).collect()
}
