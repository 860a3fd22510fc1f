//! Probes of hsearch over the load of its table, for the original's digest and for a good one.

use serde::Serialize;
use splitpoint_legacy::algorithm::hsearch::{Collisions, Hashing, Order};
use splitpoint_legacy::algorithm::{Parameters, StoreMode, Variant};

use super::Pairs;
use crate::probing::{linear_hit, uniform_hit};

/// Most slots of the table: enough to show the shape.
const BITS_MAX: u32 = 14;
/// Loads in steps of 1/20.
const STEPS: u64 = 20;
/// Keys that are looked up at each load.
const HITS_MAX: usize = 512;

/// One option of hsearch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadCurve {
    /// The name of the variant.
    pub name: String,
    /// Whether the digest is a good hash, and not the original's.
    pub has_good_digest: bool,
    /// Slots of the table, which evenly spaced keys fill.
    pub slot_count: u64,
    /// The costs, by rising load.
    pub points: Vec<LoadPoint>,
}

/// The cost of a hit at one load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoadPoint {
    /// Keys per slot.
    pub load: f64,
    /// Mean probes of a hit.
    pub hit: f64,
}

/// Returns what hits cost in the table of `curve` with an ideal hash, by double hashing and by linear
/// probing.
pub(crate) fn ideals(curve: &LoadCurve) -> [LoadCurve; 2] {
    let slots = curve.slot_count;
    let ideal = |name: &str, hit: fn(u64, u64) -> f64| {
        let of_load = |point: &LoadPoint| {
            let keys = (point.load * slots as f64).round() as u64;
            LoadPoint { load: point.load, hit: hit(keys, slots) }
        };
        let points = curve.points.iter().map(of_load).collect();
        LoadCurve { name: name.to_owned(), points, ..*curve }
    };
    [ideal("ideal double hashing", uniform_hit), ideal("ideal linear probing", linear_hit)]
}

/// Returns a curve for each way to resolve collisions, with each digest, or `None` if it was stopped.
/// The sorted chains are left out, since a hit in them costs what it costs in others.
pub(super) fn curves(pairs: &Pairs<'_>, is_stopped: &dyn Fn() -> bool) -> Option<Vec<LoadCurve>> {
    let Some(bits) = (pairs.len() as u64).checked_ilog2().filter(|&bits| bits >= 4) else {
        return Some(Vec::new());
    };
    let slots = 1 << bits.min(BITS_MAX);
    // Of a sorted list the first keys are alike: take keys from all of it.
    let every = pairs.len() / slots as usize;
    let pairs: Vec<(&[u8], &[u8])> = pairs.iter().copied().step_by(every).collect();
    let mut curves = Vec::new();
    for has_good_digest in [false, true] {
        for hashing in [Hashing::Mult, Hashing::Div] {
            for collisions in
                [Collisions::Open, Collisions::Brent, Collisions::Chained(Order::Start)]
            {
                if is_stopped() {
                    return None;
                }
                let variant =
                    Variant::Hsearch { hashing, collisions, has_compare: false, has_good_digest };
                let points = points(&pairs, variant, slots);
                let name = variant.name();
                curves.push(LoadCurve { name, has_good_digest, slot_count: slots, points });
            }
        }
    }
    Some(curves)
}

fn points(pairs: &Pairs<'_>, variant: Variant, slots: u64) -> Vec<LoadPoint> {
    let parameters = Parameters { expected_records: Some(slots - 1), ..Parameters::default() };
    let Ok(mut table) = variant.create(&parameters) else { return Vec::new() };
    let mut points = Vec::new();
    let mut stored = 0;
    for step in 1..STEPS {
        let end = ((slots * step / STEPS) as usize).min(pairs.len());
        for (key, value) in &pairs[stored..end] {
            if table.store(key, value, StoreMode::Insert).is_err() {
                return points;
            }
        }
        stored = end;
        let every = stored.div_ceil(HITS_MAX).max(1);
        let before = table.counts().probes;
        let mut count = 0_u32;
        for (key, _) in pairs[..stored].iter().step_by(every) {
            let _ = table.fetch(key);
            count += 1;
        }
        if count > 0 {
            let hit = (table.counts().probes - before) as f64 / f64::from(count);
            points.push(LoadPoint { load: stored as f64 / slots as f64, hit });
        }
    }
    points
}
