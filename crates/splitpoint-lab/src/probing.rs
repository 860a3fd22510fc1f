//! Open addressing with the hashes of the real keys: linear, double and group probing, beside
//! ideal.
//!
//! The table has as many slots as the measured one has buckets if that leaves 5 % of them free (an
//! eighth for groups, as in hashbrown), else the next size that does; each result has its slots.
//! The order of insertion depends on the hashes alone, so partial counts give the same result in
//! whatever order they are merged.
//!
//! # Source
//!
//! Knuth, The Art of Computer Programming 3, 6.4: algorithms L and D, theorem K for the ideal of
//! linear probing in a table of a given size, and uniform probing. The groups are those of
//! hashbrown: 16 slots from any start, the next start further by 16, 32, 48... slots, and 7 bits
//! of the hash in a tag that spares most comparisons of keys.

use std::hint;

use serde::{Deserialize, Serialize};

use crate::partial::{PartialStats, keys_by_bucket, mixed};
use crate::reduction::{Reducer, Reduction, hashbrown_tag, prime_at_least};

/// Slots of a group.
const GROUP_SLOTS: u64 = 16;
/// Values of a tag.
const TAGS: usize = 128;
/// A slot without a key; above all tags.
const EMPTY: u8 = 0xff;
/// Most steps for each key before insertion gives up.
const STEPS_PER_KEY: u64 = 64;
/// Steps that even the smallest set of keys may take.
const STEPS_MIN: u64 = 1 << 22;
/// Searches whose first slots are read ahead at a time.
const AHEAD: usize = 256;
/// Most misses to measure in a table; with fewer slots, one from each.
const MISSES: u64 = 1 << 12;
/// Most slots of the simulated table with an ideal hash.
const IDEAL_SLOTS_MAX: u64 = 1 << 13;
/// Misses to measure in each such table.
const IDEAL_MISSES: u64 = 1 << 10;
/// Fewest keys to insert in all such tables together.
const IDEAL_KEYS: u64 = 1 << 14;

/// A method of looking for a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The slots one after another.
    Linear,
    /// Slots a fixed step apart, with the step from the rest of the hash.
    Double,
    /// Groups of 16 slots at once, as in hashbrown.
    Group,
}

/// The cost of lookups in a table with open addressing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probing {
    /// The method of looking for a free slot.
    pub method: Method,
    /// The reduction that gave the first slot.
    pub reduction: String,
    /// Slots of the table.
    pub slot_count: u64,
    /// Keys that were inserted. If insertion gave up, these are not all keys, and the means are too
    /// low.
    pub inserted_count: u64,
    /// Mean slots, or groups, that a hit reads.
    pub hit: f64,
    /// The same for an ideal hash.
    pub hit_ideal: f64,
    /// Mean slots, or groups, that a miss reads.
    pub miss: f64,
    /// The same for an ideal hash.
    pub miss_ideal: f64,
    /// Needless comparisons of keys with equal tags, for groups.
    pub false_tags: Option<FalseTags>,
}

/// Mean number of needless comparisons with keys that have the same tag.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FalseTags {
    /// In a hit.
    pub hit: f64,
    /// The same for an ideal hash: one in 128 of the keys passed.
    pub hit_ideal: f64,
    /// In a miss, whose tag is distributed like those of the keys.
    pub miss: f64,
    /// The same for an ideal hash.
    pub miss_ideal: f64,
}

/// Returns the costs of the three methods; nothing without keys, or if some hashes were not kept.
///
/// # Cost
///
/// O(slots + keys log keys); 24 bytes for each key and four for each slot.
pub fn probing(stats: &PartialStats) -> Vec<Probing> {
    if stats.key_count() == 0 || !stats.has_all_hashes() {
        return Vec::new();
    }
    let mut hashes = stats.hashes().to_vec();
    hashes.sort_unstable_by_key(|&hash| mixed(hash));
    let reducer = stats.setup().reducer();
    let roomy = resized(reducer, |slots| slots.saturating_mul(95) / 100 >= stats.key_count());
    let mut found = Vec::new();
    if let Some(slots) = roomy {
        found.push(linear(slots, &hashes));
        found.push(double(slots, &hashes));
    }
    found.push(group(grouped(reducer, stats.key_count()), &hashes));
    found
}

/// Returns the reducer itself if its table is large enough, else that of the next larger table;
/// nothing if there is none.
fn resized(reducer: Reducer, is_enough: impl Fn(u64) -> bool) -> Option<Reducer> {
    let (reduction, mut slots) = (reducer.reduction(), reducer.bucket_count());
    if is_enough(slots) {
        return Some(reducer);
    }
    while !is_enough(slots) {
        slots = if reduction.needs_power_of_two() {
            slots.checked_mul(2)?
        } else {
            slots.checked_add(slots.div_ceil(8))?
        };
        if slots > crate::reduction::BUCKET_COUNT_MAX {
            return None;
        }
    }
    if reduction == Reduction::PrimeModulus {
        slots = prime_at_least(slots);
    }
    reduction.prepare(reducer.width_bits(), slots).ok()
}

/// Returns the table of groups: the measured one if it is a power of two that leaves an eighth of
/// its slots free, else that of hashbrown.
fn grouped(reducer: Reducer, key_count: u64) -> Reducer {
    let slots = reducer.bucket_count();
    let needed = key_count.saturating_mul(8).div_ceil(7).max(GROUP_SLOTS);
    if slots.is_power_of_two() && slots >= needed {
        return reducer;
    }
    let slots = needed.next_power_of_two();
    Reduction::Hashbrown.prepare(reducer.width_bits(), slots).unwrap_or(reducer)
}

/// Remaining steps. A hash that exhausts them is so bad that further steps would show nothing new.
struct Budget(u64);

impl Budget {
    fn of(key_count: usize) -> Self {
        Self((key_count as u64).saturating_mul(STEPS_PER_KEY).max(STEPS_MIN))
    }

    fn take(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0
    }
}

/// Linear probing, from the number of keys of each home slot alone, because neither the sum of all
/// steps nor the free slots at the end depend on the order of insertion.
fn linear(reducer: Reducer, hashes: &[u64]) -> Probing {
    let slots = reducer.bucket_count();
    let homes = keys_by_bucket(reducer, hashes);
    // Keys that a slot passes on to the next; those of the last slot come to the first.
    let mut passed = 0_u64;
    for &keys in &homes {
        passed = (passed + u64::from(keys)).saturating_sub(1);
    }
    let (mut steps, mut pairs, mut run, mut first_run) = (0_u128, 0_u128, 0_u128, None);
    for &keys in &homes {
        let waiting = passed + u64::from(keys);
        if waiting == 0 {
            match first_run {
                None => first_run = Some(run),
                Some(_) => pairs += run * (run + 1) / 2,
            }
            run = 0;
            continue;
        }
        run += 1;
        passed = waiting - 1;
        steps += u128::from(passed);
    }
    // The run at the end continues at the start.
    run += first_run.unwrap_or(0);
    pairs += run * (run + 1) / 2;
    let (n, m) = (hashes.len() as u64, slots);
    Probing {
        method: Method::Linear,
        reduction: reducer.reduction().to_string(),
        slot_count: slots,
        inserted_count: n,
        hit: 1.0 + steps as f64 / n as f64,
        hit_ideal: linear_hit(n, m),
        miss: 1.0 + pairs as f64 / m as f64,
        miss_ideal: linear_miss(n, m),
        false_tags: None,
    }
}

/// Returns the mean probes of linear probing for one of `n` keys in `m` slots: Knuth's theorem K.
pub fn linear_hit(n: u64, m: u64) -> f64 {
    f64::midpoint(1.0, knuth_q(0, m, n.saturating_sub(1)))
}

/// Returns the mean probes of linear probing for a key that is not among `n` in `m` slots.
pub fn linear_miss(n: u64, m: u64) -> f64 {
    f64::midpoint(1.0, knuth_q(1, m, n))
}

/// Returns `Q_r(m, n)`: the sum of `C(r + k, k) (n / m) ((n - 1) / m) ... ((n - k + 1) / m)`.
fn knuth_q(r: u64, m: u64, n: u64) -> f64 {
    let (mut product, mut sum) = (1.0, 1.0);
    for k in 1..=n {
        product *= (n - k + 1) as f64 / m as f64;
        let term = if r == 0 { product } else { product * (k + 1) as f64 };
        sum += term;
        if term < sum * 1e-16 {
            break;
        }
    }
    sum
}

/// Returns the mean probes of an ideal order of slots for one of `n` keys in `m` slots:
/// `(m + 1) / n (H(m + 1) - H(m - n + 1))`.
pub fn uniform_hit(n: u64, m: u64) -> f64 {
    if n == 0 {
        return 0.0;
    }
    (m + 1) as f64 / n as f64 * (harmonic(m + 1) - harmonic(m - n + 1))
}

/// Returns the same for a miss: `(m + 1) / (m - n + 1)`.
pub fn uniform_miss(n: u64, m: u64) -> f64 {
    (m + 1) as f64 / (m - n + 1) as f64
}

/// Returns the sum of `1 / k` up to `n`, without Euler's constant if `n` is large, because the
/// callers need only differences.
fn harmonic(n: u64) -> f64 {
    const EULER: f64 = 0.577_215_664_901_532_9;
    if n < 64 {
        return (1..=n).map(|k| 1.0 / k as f64).sum();
    }
    let x = n as f64;
    EULER + x.ln() + 1.0 / (2.0 * x) - 1.0 / (12.0 * x * x) + 1.0 / (120.0 * x.powi(4))
}

/// Double hashing. Equal hashes follow each other in `hashes`, so that each goes on from where the
/// last of them came to its slot.
fn double(reducer: Reducer, hashes: &[u64]) -> Probing {
    let slots = reducer.bucket_count();
    let mut used = UsedSlots::new(slots);
    let (mut budget, mut probes, mut inserted) = (Budget::of(hashes.len()), 0_u64, 0_u64);
    'insertion: for equal in hashes.chunk_by(|one, other| one == other) {
        let (mut slot, step) = (reducer.bucket_of(equal[0]), step(reducer, equal[0]));
        let mut walked = 1;
        for _ in equal {
            while used.has(slot) {
                slot = after(slot, step, slots);
                walked += 1;
                if !budget.take() {
                    break 'insertion;
                }
            }
            used.add(slot);
            probes += walked;
            inserted += 1;
        }
    }
    let mut missed = 0_u64;
    for number in 0..MISSES {
        let absent = mixed(number ^ 0xab5e_0000_0000_0000);
        let mut slot = absent % slots;
        let step = coprime(mixed(absent) % slots, slots);
        missed += 1;
        while used.has(slot) {
            slot = after(slot, step, slots);
            missed += 1;
        }
    }
    let n = hashes.len() as u64;
    Probing {
        method: Method::Double,
        reduction: reducer.reduction().to_string(),
        slot_count: slots,
        inserted_count: inserted,
        hit: probes as f64 / inserted.max(1) as f64,
        hit_ideal: uniform_hit(n, slots),
        miss: missed as f64 / MISSES as f64,
        miss_ideal: uniform_miss(n, slots),
        false_tags: None,
    }
}

/// The slots with a key, one bit each: an eighth of what the processor would wait for with bytes.
struct UsedSlots(Vec<u64>);

impl UsedSlots {
    fn new(slots: u64) -> Self {
        Self(vec![0; slots.div_ceil(64) as usize])
    }

    fn has(&self, slot: u64) -> bool {
        self.0[(slot / 64) as usize] >> (slot % 64) & 1 == 1
    }

    fn add(&mut self, slot: u64) {
        self.0[(slot / 64) as usize] |= 1 << (slot % 64);
    }
}

/// Returns the slot `step` slots after `slot`, without a division: neither is more than `slots`.
fn after(slot: u64, step: u64, slots: u64) -> u64 {
    let next = slot + step;
    if next < slots { next } else { next - slots }
}

/// Returns the step of a hash, from bits that the first slot does not depend on, if there are any.
fn step(reducer: Reducer, hash: u64) -> u64 {
    let (slots, width_bits) = (reducer.bucket_count(), reducer.width_bits());
    let hash = hash & (u64::MAX >> (64 - width_bits));
    let rest = match reducer.reduction() {
        Reduction::HighShift
        | Reduction::Shift(_)
        | Reduction::ShiftFrom(_)
        | Reduction::Multiply32(_) => hash,
        Reduction::Range => {
            // What is left of the product, as a share of the slots again. Its low bits are those of
            // the number of slots.
            let product = u128::from(hash) * u128::from(slots);
            let rest = product & (u128::MAX >> (128 - width_bits));
            ((rest * u128::from(slots)) >> width_bits) as u64
        }
        _ => hash / slots,
    };
    coprime(rest % slots, slots)
}

/// Returns the first number from `step` on with which every slot is reached.
fn coprime(step: u64, slots: u64) -> u64 {
    if slots.is_power_of_two() {
        return step | 1;
    }
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    // 1 less than the slots has no divisor in common with them.
    (step.max(1)..slots).find(|&step| gcd(step, slots) == 1).unwrap_or(1)
}

/// A table of groups of slots with tags.
struct Groups {
    tags: Vec<u8>,
}

/// The state of a search in [`Groups`].
#[derive(Clone, Copy, Default)]
struct Search {
    start: u64,
    stride: u64,
    /// The next slot of the group.
    at: u64,
    groups: u64,
    /// Keys of other slots that were passed.
    passed: u64,
    /// Those of them with the wanted tag.
    false_tags: u64,
}

impl Groups {
    fn new(slots: u64) -> Self {
        Self { tags: vec![EMPTY; slots as usize] }
    }

    fn tag_at(&mut self, search: &Search) -> &mut u8 {
        let mask = self.tags.len() as u64 - 1;
        &mut self.tags[((search.start + search.at) & mask) as usize]
    }

    /// Reads the slots where the searches for `hashes` start. They are not in the cache, and here the
    /// processor waits for many at a time.
    fn read_ahead(&self, hashes: &[u64], home_of: impl Fn(u64) -> u64) {
        let tags = hashes.iter().map(|&hash| self.tags[home_of(hash) as usize]);
        hint::black_box(tags.fold(0, |all, tag| all | tag));
    }

    fn from_home(home: u64) -> Search {
        Search { start: home, groups: 1, ..Search::default() }
    }

    /// Continues to the first empty slot; false if that takes more than `budget`.
    fn seek_empty(&mut self, search: &mut Search, tag: u8, budget: &mut Budget) -> bool {
        loop {
            while search.at < GROUP_SLOTS {
                let found = *self.tag_at(search);
                if found == EMPTY {
                    return true;
                }
                search.passed += 1;
                search.false_tags += u64::from(found == tag);
                search.at += 1;
            }
            search.stride += GROUP_SLOTS;
            search.start += search.stride;
            search.at = 0;
            search.groups += 1;
            if !budget.take() {
                return false;
            }
        }
    }
}

/// Sums over lookups in a table of groups.
#[derive(Clone, Copy, Debug, Default)]
struct GroupSums {
    inserted: u64,
    hit_groups: u64,
    hit_passed: u64,
    hit_false: u64,
    misses: u64,
    miss_groups: u64,
    miss_passed: u64,
    miss_false: f64,
}

impl GroupSums {
    /// Inserts keys with these hashes, equal ones together, and counts. Nothing deletes a key, so a
    /// lookup passes what the insertion passed.
    fn add(&mut self, hashes: &[u64], slots: u64, misses: u64, home_of: impl Fn(u64) -> u64) {
        let mut groups = Groups::new(slots);
        let mut budget = Budget::of(hashes.len());
        let mut keys_of_tag = [0_u64; TAGS];
        let before = self.inserted;
        let (mut at, mut read_to) = (0, 0);
        'insertion: for equal in hashes.chunk_by(|one, other| one == other) {
            if at >= read_to {
                read_to = hashes.len().min(at + AHEAD);
                groups.read_ahead(&hashes[at..read_to], &home_of);
            }
            at += equal.len();
            let tag = hashbrown_tag(equal[0]);
            let mut search = Groups::from_home(home_of(equal[0]));
            for _ in equal {
                if !groups.seek_empty(&mut search, tag, &mut budget) {
                    break 'insertion;
                }
                *groups.tag_at(&search) = tag;
                keys_of_tag[usize::from(tag)] += 1;
                self.inserted += 1;
                self.hit_groups += search.groups;
                self.hit_passed += search.passed;
                self.hit_false += search.false_tags;
            }
        }
        let others = (self.inserted - before).saturating_sub(1).max(1) as f64;
        let misses = slots.min(misses);
        self.misses += misses;
        for number in 0..misses {
            // Every slot once, or as many all over the table.
            let mut search = Groups::from_home(number * (slots / misses));
            loop {
                let mut has_empty = false;
                for at in 0..GROUP_SLOTS {
                    search.at = at;
                    let tag = *groups.tag_at(&search);
                    if tag == EMPTY {
                        has_empty = true;
                    } else {
                        self.miss_passed += 1;
                        // Of the other keys: this one's tag is no news of theirs.
                        self.miss_false += (keys_of_tag[usize::from(tag)] - 1) as f64 / others;
                    }
                }
                self.miss_groups += 1;
                if has_empty {
                    break;
                }
                search.stride += GROUP_SLOTS;
                search.start += search.stride;
            }
        }
    }

    fn hit(&self, sum: u64) -> f64 {
        sum as f64 / self.inserted.max(1) as f64
    }

    fn miss(&self, sum: f64) -> f64 {
        sum / self.misses.max(1) as f64
    }
}

fn group(reducer: Reducer, hashes: &[u64]) -> Probing {
    let slots = reducer.bucket_count();
    let mut sums = GroupSums::default();
    sums.add(hashes, slots, MISSES, |hash| reducer.bucket_of(hash));
    let ideal = group_ideal(hashes.len() as u64, slots);
    let per_tag = 1.0 / TAGS as f64;
    Probing {
        method: Method::Group,
        reduction: reducer.reduction().to_string(),
        slot_count: slots,
        inserted_count: sums.inserted,
        hit: sums.hit(sums.hit_groups),
        hit_ideal: ideal.hit(ideal.hit_groups),
        miss: sums.miss(sums.miss_groups as f64),
        miss_ideal: ideal.miss(ideal.miss_groups as f64),
        false_tags: Some(FalseTags {
            hit: sums.hit(sums.hit_false),
            hit_ideal: ideal.hit(ideal.hit_passed) * per_tag,
            miss: sums.miss(sums.miss_false),
            miss_ideal: ideal.miss(ideal.miss_passed as f64) * per_tag,
        }),
    }
}

/// Simulates tables of this load with an ideal hash, because there is no closed form. A lookup
/// depends on its neighborhood alone, so a part of a large table is enough.
fn group_ideal(key_count: u64, slots: u64) -> GroupSums {
    let small = slots.min(IDEAL_SLOTS_MAX);
    let keys = (u128::from(key_count) * u128::from(small) / u128::from(slots)).max(1) as u64;
    let mut sums = GroupSums::default();
    for round in 0..IDEAL_KEYS.div_ceil(keys).min(64) {
        let ideal = |number: u64| mixed(mixed(round ^ 0x1dea_1000_0000_0000) ^ number);
        let hashes: Vec<u64> = (0..keys).map(ideal).collect();
        sums.add(&hashes, small, IDEAL_MISSES, |hash| hash & (small - 1));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: u64 = 200;

    fn ideal_hashes(seed: u64, count: u64) -> Vec<u64> {
        (0..count).map(|number| mixed(mixed(seed << 32 | 7) ^ number)).collect()
    }

    #[track_caller]
    fn check_mean(what: &str, values: &[f64], expected: f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / (n - 1.0) / n).sqrt();
        // In a full table every seed gives the same.
        assert!(
            (mean - expected).abs() < 4.0 * error + 1e-9,
            "{what}: {mean} +- {error}, {expected}"
        );
    }

    /// Theorem K and uniform probing against tables that are filled, nearly full ones too.
    #[test]
    fn the_ideals_are_the_means_of_simulation() {
        for (slots, keys) in [(16, 15), (128, 64), (512, 460), (1000, 900), (1009, 500)] {
            let reduction = if slots == 1000 { Reduction::Range } else { Reduction::Modulus };
            let reducer = reduction.prepare(64, slots).unwrap();
            let of_seed = |seed| {
                let hashes = ideal_hashes(seed, keys);
                (linear(reducer, &hashes), double(reducer, &hashes))
            };
            let (one, two): (Vec<_>, Vec<_>) = (0..SEEDS).map(of_seed).unzip();
            let values = |found: &[Probing], of: fn(&Probing) -> f64| {
                found.iter().map(of).collect::<Vec<f64>>()
            };
            let what = |what: &str| format!("{what} of {keys} in {slots}");
            check_mean(&what("linear hit"), &values(&one, |p| p.hit), one[0].hit_ideal);
            check_mean(&what("linear miss"), &values(&one, |p| p.miss), one[0].miss_ideal);
            // Double hashing is not quite uniform probing, and less so the smaller the table.
            if slots > 500 {
                let mean = values(&two, |p| p.hit).iter().sum::<f64>() / SEEDS as f64;
                assert!((mean / two[0].hit_ideal - 1.0).abs() < 0.02, "{mean} {:?}", two[0]);
            }
            check_mean(&what("uniform miss"), &uniform_misses(slots, keys), two[0].miss_ideal);
        }
    }

    /// Probes in tables of which every set of slots is as likely to be full.
    fn uniform_misses(slots: u64, keys: u64) -> Vec<f64> {
        let of_seed = |seed: u64| {
            let mut order: Vec<u64> = (0..slots).collect();
            order.sort_by_key(|&slot| mixed(mixed(seed ^ 0x5107) ^ slot));
            let empty = order.iter().position(|&slot| slot >= keys).expect("one is empty");
            empty as f64 + 1.0
        };
        (0..2000).map(of_seed).collect()
    }

    /// The same table written out slot by slot, for homes that wrap around too.
    #[test]
    fn linear_probing_is_that_of_a_table_filled_key_by_key() {
        let reducer = Reduction::LowMask.prepare(64, 64).unwrap();
        for seed in 0..50 {
            // Half of the keys are near the end.
            let hashes: Vec<u64> = ideal_hashes(seed, 50)
                .into_iter()
                .map(|hash| if hash >> 63 == 0 { hash } else { hash | 0b11_1100 })
                .collect();
            let mut is_used = [false; 64];
            let mut probes = 0;
            for &hash in &hashes {
                let mut slot = (hash & 63) as usize;
                probes += 1;
                while is_used[slot] {
                    slot = (slot + 1) % 64;
                    probes += 1;
                }
                is_used[slot] = true;
            }
            let misses: usize = (0..64)
                .map(|home| 1 + (0..64).take_while(|step| is_used[(home + step) % 64]).count())
                .sum();
            let found = linear(reducer, &hashes);
            let expected = (f64::from(probes) / 50.0, misses as f64 / 64.0);
            let (hit, miss) = (found.hit - expected.0, found.miss - expected.1);
            assert!(hit.abs() < 1e-9 && miss.abs() < 1e-9, "seed {seed}: {hit} {miss}");
        }
    }

    /// The simulated ideal of groups against other tables of the same load, and false tags.
    #[test]
    fn groups_of_an_ideal_hash_cost_what_was_simulated() {
        for (slots, keys) in [(16, 9), (1024, 896), (1 << 14, 12_000)] {
            let reducer = Reduction::Hashbrown.prepare(64, slots).unwrap();
            let found: Vec<Probing> =
                (1..=20).map(|seed| group(reducer, &ideal_hashes(seed, keys))).collect();
            let mean = |of: fn(&Probing) -> f64| found.iter().map(of).sum::<f64>() / 20.0;
            let tags = |probing: &Probing| probing.false_tags.expect("groups have tags");
            let ideal = &found[0];
            assert!((mean(|p| p.hit) / ideal.hit_ideal - 1.0).abs() < 0.01, "{ideal:?}");
            assert!((mean(|p| p.miss) / ideal.miss_ideal - 1.0).abs() < 0.02, "{ideal:?}");
            let false_hit = found.iter().map(|p| tags(p).hit).sum::<f64>() / 20.0;
            let false_miss = found.iter().map(|p| tags(p).miss).sum::<f64>() / 20.0;
            if slots > 1000 {
                assert!(
                    (false_hit / tags(ideal).hit_ideal - 1.0).abs() < 0.1,
                    "{false_hit} {ideal:?}"
                );
                assert!(
                    (false_miss / tags(ideal).miss_ideal - 1.0).abs() < 0.1,
                    "{false_miss} {ideal:?}"
                );
            }
        }
    }

    #[test]
    fn a_narrow_hash_leaves_the_tags_alike_and_equal_hashes_are_counted_out() {
        let reducer = Reduction::LowMask.prepare(32, 2048).unwrap();
        let hashes: Vec<u64> = ideal_hashes(1, 1500).into_iter().map(|hash| hash >> 32).collect();
        let tags = group(reducer, &hashes).false_tags.unwrap();
        assert!(tags.hit > 50.0 * tags.hit_ideal && tags.miss > 50.0 * tags.miss_ideal, "{tags:?}");
        let equal = vec![77_u64; 1500];
        assert!((linear(reducer, &equal).hit - 750.5).abs() < 1e-9);
        assert!((double(reducer, &equal).hit - 750.5).abs() < 1e-9);
        // 15 groups of 16 hold 240 keys, and so on; the last is in the 94th.
        let found = group(reducer, &equal);
        assert_eq!((found.inserted_count, found.hit), (1500, 47.376));
    }
}
