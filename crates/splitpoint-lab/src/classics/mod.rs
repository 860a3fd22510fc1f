//! The hashing schemes of the paper of 1991 on the user's keys, beside the ideal.
//!
//! ```text
//! pairs --> each variant of splitpoint_legacy::algorithm --> counts --> ClassicsReport
//!             stores all, fetches all, misses some            ideal beside each
//! ```
//!
//! # Invariants
//!
//! - Every number except the times is the same from run to run with the same keys and seed.
//!
//! # Source
//!
//! Seltzer and Yigit, "A new hashing package for UNIX", USENIX Winter 1991.

mod curve;
mod ideal;
mod measure;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde::Serialize;
use splitpoint_legacy::algorithm::{Parameters, Variant, hsearch};

pub(crate) use curve::ideals;
pub use curve::{LoadCurve, LoadPoint};
pub use measure::{ClassicsRow, StoreFailure};

/// The pairs to store: keys that differ, with their values.
pub type Pairs<'a> = [(&'a [u8], &'a [u8])];

/// The schemes of 1991 on one set of keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassicsReport {
    /// Version of the form: 1.
    pub schema: u32,
    /// Where the keys are from.
    pub source: String,
    /// Different keys.
    pub key_count: u64,
    /// Mean bytes of a key.
    pub key_bytes_mean: f64,
    /// Mean bytes of a key and its value.
    pub pair_bytes_mean: f64,
    /// Different digests that System V's hsearch has for the keys.
    pub digest_count: u64,
    /// Keys of the most frequent digest.
    pub digest_keys_max: u64,
    /// The seed of the keys that are missed.
    pub seed: u64,
    /// One row for each variant.
    pub rows: Vec<ClassicsRow>,
    /// Probes of hsearch over the load of its table.
    pub curves: Vec<LoadCurve>,
    /// What is missing, if the work was stopped.
    pub interruption: Option<String>,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the keys are from.
    pub source: String,
    /// The variants.
    pub variants: Vec<Variant>,
    /// Their parameters. Without an expected number of records, tables of fixed size are made for
    /// the number of keys, and the others grow from their smallest size.
    pub parameters: Parameters,
    /// The seed of the keys that are missed.
    pub seed: u64,
}

/// Returns the variants that are worth a row each: all, except for those of USCR that visit the same
/// entries as without it. A comparison changes the order of sorted chains only.
pub fn variants() -> Vec<Variant> {
    let is_shown = |variant: &Variant| match variant {
        Variant::Hsearch { collisions, has_compare: true, .. } => is_sorted(*collisions),
        _ => true,
    };
    Variant::all().into_iter().filter(is_shown).collect()
}

fn is_sorted(collisions: hsearch::Collisions) -> bool {
    use hsearch::{Collisions, Order};
    matches!(collisions, Collisions::Chained(Order::Up | Order::Down))
}

/// Measures each variant of `plan` on `pairs`, until `is_stopped`. Calls `begin` before each with its
/// number.
///
/// # Errors
///
/// [`splitpoint::Error::Invalid`] if a variant does not take the parameters.
///
/// # Cost
///
/// Stores and fetches every pair in each variant. A row ends early, and says so, when a bad digest
/// costs more probes than a fixed budget.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::classics::{self, Plan};
/// use splitpoint_legacy::algorithm::{Parameters, Variant};
///
/// let keys: Vec<String> = (0..1000).map(|number| format!("key {number}")).collect();
/// let pairs: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (key.as_bytes(), &b"1"[..])).collect();
/// let plan = Plan {
///     source: "keys".to_owned(),
///     variants: vec![Variant::Ndbm],
///     parameters: Parameters::default(),
///     seed: 1,
/// };
/// let report = classics::measure(&pairs, &plan, &mut |_| (), &|| false)?;
/// // The idea of dbm: one page for each lookup.
/// assert_eq!(report.rows[0].hit, Some(1.0));
/// # Ok::<(), splitpoint::Error>(())
/// ```
pub fn measure(
    pairs: &Pairs<'_>,
    plan: &Plan,
    begin: &mut dyn FnMut(usize),
    is_stopped: &dyn Fn() -> bool,
) -> splitpoint::Result<ClassicsReport> {
    let mut report = facts(pairs, plan);
    let misses = measure::misses(pairs, plan.seed);
    for (number, &variant) in plan.variants.iter().enumerate() {
        begin(number);
        let row = measure::row(pairs, &misses, variant, &plan.parameters, is_stopped)?;
        let Some(row) = row else {
            report.interruption =
                Some(format!("{} of {} variants were measured", number, plan.variants.len()));
            return Ok(report);
        };
        report.rows.push(row);
    }
    if plan.variants.iter().any(|variant| variant.module() == "hsearch") {
        match curve::curves(pairs, is_stopped) {
            Some(curves) => report.curves = curves,
            None => report.interruption = Some("the curves of hsearch are missing".to_owned()),
        }
    }
    Ok(report)
}

fn facts(pairs: &Pairs<'_>, plan: &Plan) -> ClassicsReport {
    let count = pairs.len().max(1) as f64;
    let bytes = |of: fn(&(&[u8], &[u8])) -> usize| pairs.iter().map(of).sum::<usize>() as f64;
    let (digest_count, digest_keys_max) = digests(pairs.iter().map(|(key, _)| *key));
    ClassicsReport {
        schema: 1,
        source: plan.source.clone(),
        key_count: pairs.len() as u64,
        key_bytes_mean: bytes(|(key, _)| key.len()) / count,
        pair_bytes_mean: bytes(|(key, value)| key.len() + value.len()) / count,
        digest_count,
        digest_keys_max,
        seed: plan.seed,
        rows: Vec::new(),
        curves: Vec::new(),
        interruption: None,
    }
}

/// Returns the number of different digests that System V's hsearch has for `keys`, and the keys of
/// the most frequent.
pub fn digests<'a>(keys: impl IntoIterator<Item = &'a [u8]>) -> (u64, u64) {
    let mut digests: Vec<u32> = keys.into_iter().map(hsearch::digest).collect();
    digests.sort_unstable();
    let groups = digests.chunk_by(|one, other| one == other);
    let (mut count, mut most) = (0, 0);
    for group in groups {
        count += 1;
        most = most.max(group.len() as u64);
    }
    (count, most)
}

/// Returns the pairs without those whose key came before.
pub fn distinct<'a>(
    pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Vec<(&'a [u8], &'a [u8])> {
    let mut seen = HashSet::new();
    pairs.into_iter().filter(|(key, _)| seen.insert(*key)).collect()
}
