//! Chooses the function and the reduction whose lookups cost least on the user's keys.
//!
//! ```text
//! lookup = time of the hash + cache lines * time of a line
//! cache lines of a hit = 1 of the bucket + keys compared, ideal * worst cost ratio
//! ```
//!
//! The table is chained: an array of bucket heads, 8 bytes each, and a cache line for each key. The
//! cost ratio is the worst over seven sizes around the requested one and, if the function has a
//! seed, three seeds. It counts only where chance does not explain it, by the verdict that all
//! commands share. A structured distribution counts as ideal, because other keys will not have it.
//!
//! # Not here
//!
//! `timing` and `line_load` measure the times.

use splitpoint::linear::Geometry;
use splitpoint::stats::Ideal;

use crate::line_load::LINE_BYTES;
use crate::measure::{Evidence, Grade};
use crate::number::{fixed, grouped};
use crate::partial::occupancy;
use crate::probability::sidak;
use crate::specimen::{Seeding, Stability};
use crate::study::{Choice, Manner, Spread, Study, Wishes};
use crate::{Error, Reducer, Reduction, Specimen};

/// Reductions that work with any function.
pub const REDUCTIONS: [Reduction; 4] =
    [Reduction::LowMask, Reduction::HighShift, Reduction::Range, Reduction::Split];
/// Seeds to try.
pub const SEEDS: [u64; 3] = [0, 0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];

/// Sizes to try on each side of the requested one, each half or double the one before.
const SIZES: i32 = 3;
/// Bytes of the head of a bucket.
const HEAD_BYTES: u64 = 8;
/// Bytes of the counter of a bucket.
const COUNTER_BYTES: u64 = size_of::<u32>() as u64;
/// Bits of the widest hashes.
const WIDTH_BITS_MAX: u32 = u64::BITS;
/// Choices whose costs differ by less than this factor are equally good.
pub(crate) const TIE: f64 = 1.05;
/// The usual defaults, and where people find them.
const POPULAR: [(&str, &str); 6] = [
    ("fnv1a-64", "FNV-1a"),
    ("db-hash4", "h * 33 + c"),
    ("siphash-1-3", "the default of Rust's HashMap"),
    ("foldhash-fast", "the default of hashbrown"),
    ("xxh3-64", "XXH3"),
    ("rapidhash-v3", "rapidhash"),
];

/// Returns the reason to rule a function out, or `None`.
pub fn refusal(wishes: Wishes, specimen: &Specimen) -> Option<&'static str> {
    let is_keyed = matches!(specimen.seeding(), Seeding::Key128 | Seeding::Key256);
    if wishes.on_disk && specimen.stability() != Stability::Frozen {
        Some("its output is not frozen: it cannot be kept in files")
    } else if wishes.hostile && !is_keyed {
        Some("it has no secret key: an attacker can choose keys that collide")
    } else {
        None
    }
}

/// Returns the bytes of a table with these numbers of buckets and keys.
pub fn table_bytes(bucket_count: u64, key_count: u64) -> u64 {
    bucket_count.saturating_mul(HEAD_BYTES).saturating_add(key_count.saturating_mul(LINE_BYTES))
}

/// Returns the size of a table near `bucket_count` that a reduction can address.
pub fn bucket_count_for(reduction: Reduction, bucket_count: u64) -> u64 {
    match bucket_count.checked_next_power_of_two() {
        Some(rounded) if reduction.needs_power_of_two() => rounded,
        _ => bucket_count,
    }
}

/// Returns the most memory that [`Distribution::add`] takes for counters at once, with any of
/// [`REDUCTIONS`], in bytes; 0 if no table can have `bucket_count` buckets.
pub fn counter_bytes_max(bucket_count: u64) -> u64 {
    let counts = REDUCTIONS.iter().flat_map(|&reduction| {
        let requested = bucket_count_for(reduction, bucket_count);
        match reduction.prepare(WIDTH_BITS_MAX, requested) {
            Ok(_) => bucket_counts(reduction, WIDTH_BITS_MAX, requested),
            Err(_) => Vec::new(),
        }
    });
    COUNTER_BYTES * counts.max().unwrap_or(0)
}

/// Returns the sizes to try around `bucket_count`, which the reduction can address.
fn bucket_counts(reduction: Reduction, width_bits: u32, bucket_count: u64) -> Vec<u64> {
    let scaled = |exponent: i32| {
        let whole = match exponent {
            ..0 => bucket_count >> -exponent,
            _ => bucket_count << exponent,
        };
        match (exponent, reduction.needs_power_of_two()) {
            (0, _) | (_, true) => whole,
            _ => whole + whole / 3,
        }
    };
    let is_possible = |&count: &u64| count > 0 && reduction.prepare(width_bits, count).is_ok();
    (-SIZES..=SIZES).map(scaled).filter(is_possible).collect()
}

/// The distribution of one function's hashes with one reduction, at several sizes and seeds.
#[derive(Clone, Debug)]
pub struct Distribution {
    reduction: Reduction,
    bucket_count: u64,
    width_bits: u32,
    key_count: u64,
    trial_count: u64,
    worst_ratio: f64,
    worst_bucket_count: u64,
    least_p: f64,
    /// The worst verdict at all sizes, and at the requested one.
    grade: Grade,
    grade_here: Grade,
}

impl Distribution {
    /// Starts without trials.
    ///
    /// # Errors
    ///
    /// [`Error::BucketCount`] if no table can have this size.
    pub fn new(
        specimen: &Specimen,
        reduction: Reduction,
        bucket_count: u64,
    ) -> Result<Self, Error> {
        let bucket_count = bucket_count_for(reduction, bucket_count);
        reduction.prepare(specimen.width_bits(), bucket_count)?;
        Ok(Self {
            reduction,
            bucket_count,
            width_bits: specimen.width_bits(),
            key_count: 0,
            trial_count: 0,
            worst_ratio: 0.0,
            worst_bucket_count: bucket_count,
            least_p: 1.0,
            grade: Grade::Fits,
            grade_here: Grade::Fits,
        })
    }

    /// Returns the sizes to try.
    ///
    /// Reductions that take any size get sizes between powers of two, where they differ from masks.
    pub fn bucket_counts(&self) -> Vec<u64> {
        bucket_counts(self.reduction, self.width_bits, self.bucket_count)
    }

    /// Tries all sizes with the hashes of all keys under one seed.
    ///
    /// # Cost
    ///
    /// A counter of 4 bytes for each bucket of the largest size, at most [`counter_bytes_max`];
    /// a step for each hash and size.
    ///
    /// # Panics
    ///
    /// If there are 2^32 hashes or more.
    pub fn add(&mut self, hashes: &[u64]) {
        assert!(u32::try_from(hashes.len()).is_ok(), "counters are of 32 bits");
        self.key_count = hashes.len() as u64;
        for bucket_count in self.bucket_counts() {
            let reducer = self.reduction.prepare(self.width_bits, bucket_count);
            self.add_size(hashes, reducer.expect("the size is possible"));
        }
    }

    fn add_size(&mut self, hashes: &[u64], reducer: Reducer) {
        let mut counters = vec![0_u32; reducer.bucket_count() as usize];
        for &hash in hashes {
            counters[reducer.bucket_of(hash) as usize] += 1;
        }
        let occupancy = occupancy(reducer, || counters.iter().map(|&keys| u64::from(keys)));
        let (ratio, evidence) = (occupancy.cost_ratio(), Evidence::of(&occupancy));
        let grade = evidence.judge().grade();
        self.trial_count += 1;
        self.least_p = self.least_p.min(evidence.worse_p);
        self.grade = self.grade.max(grade);
        if reducer.bucket_count() == self.bucket_count {
            self.grade_here = self.grade_here.max(grade);
        }
        if ratio > self.worst_ratio {
            (self.worst_ratio, self.worst_bucket_count) = (ratio, reducer.bucket_count());
        }
    }

    fn manner(&self) -> Manner {
        match self.grade {
            Grade::Fits => Manner::Fits,
            Grade::Structured => Manner::Structured,
            Grade::Slight => Manner::Slight,
            Grade::Worse if self.grade_here.is_worse() => Manner::Worse,
            Grade::Worse => Manner::FailsElsewhere,
        }
    }

    /// Returns this as a choice, for a function that takes `hash_ns`, if that could be measured, and
    /// a table whose lines take `line_ns`.
    pub fn choice(&self, specimen: &Specimen, hash_ns: Option<f64>, line_ns: &Spread) -> Choice {
        let manner = self.manner();
        let ideal = match self.reduction {
            Reduction::Split => {
                Ideal::new(Geometry::with_bucket_count(self.bucket_count), self.key_count)
            }
            _ => Ideal::uniform(self.bucket_count, self.key_count),
        };
        let charged = match manner {
            Manner::Worse | Manner::FailsElsewhere | Manner::Slight => self.worst_ratio.max(1.0),
            Manner::Fits | Manner::Structured => 1.0,
        };
        let (is_timed, hash_ns) = (hash_ns.is_some(), hash_ns.unwrap_or(0.0));
        let line_count = 1.0 + ideal.probes_hit(1) * charged;
        Choice {
            hash: specimen.name().to_owned(),
            reduction: self.reduction.to_string(),
            bucket_count: self.bucket_count,
            hash_ns,
            is_timed,
            line_count,
            line_ns: line_ns.median,
            table_bytes: table_bytes(self.bucket_count, self.key_count),
            lookup_ns: hash_ns + line_count * line_ns.median,
            cost_ratio: self.worst_ratio,
            worst_bucket_count: self.worst_bucket_count,
            worst_p: sidak(self.least_p, self.trial_count as f64),
            trial_count: self.trial_count,
            manner,
            caution: self.caution(specimen, manner, is_timed),
        }
    }

    fn caution(&self, specimen: &Specimen, manner: Manner, is_timed: bool) -> String {
        let (ratio, size) = (fixed(self.worst_ratio, 2), grouped(self.worst_bucket_count));
        let mut cautions = Vec::new();
        if !is_timed {
            cautions.push("its own time is not known and not counted".to_owned());
        }
        match manner {
            Manner::Fits => {}
            Manner::Structured => {
                cautions
                    .push("keeps a structure of these keys: others will not have it".to_owned());
            }
            Manner::Slight => {
                cautions
                    .push(format!("a little less even than chance: x{ratio} at {size} buckets"));
            }
            Manner::FailsElsewhere => {
                cautions.push(format!("fits here, but costs x{ratio} at {size} buckets"));
            }
            Manner::Worse => cautions.push(format!("costs x{ratio} at {size} buckets")),
        }
        if !matches!(specimen.seeding(), Seeding::Key128 | Seeding::Key256) {
            cautions.push("not against hostile keys".into());
        }
        if specimen.stability() != Stability::Frozen {
            cautions.push("not on disk".into());
        }
        cautions.join("; ")
    }
}

/// Sorts choices: first those that fit at all sizes and seeds, then the others, the cheapest first;
/// those whose time is not known come last.
pub fn rank(choices: &mut [Choice]) {
    choices.sort_by(|one, other| {
        let classes = (other.is_sound(), other.is_timed).cmp(&(one.is_sound(), one.is_timed));
        classes.then(one.lookup_ns.total_cmp(&other.lookup_ns))
    });
}

impl Choice {
    /// Returns whether its distribution will hold with other keys and at other sizes, and its time
    /// is known.
    pub fn is_sound(&self) -> bool {
        self.manner == Manner::Fits && self.is_timed
    }

    /// Returns the verdict at all sizes and seeds that were tried.
    pub fn grade(&self) -> Grade {
        match self.manner {
            Manner::Fits => Grade::Fits,
            Manner::Structured => Grade::Structured,
            Manner::Slight => Grade::Slight,
            Manner::FailsElsewhere | Manner::Worse => Grade::Worse,
        }
    }

    fn named(&self) -> String {
        format!("{} with `{}`", self.hash, self.reduction)
    }
}

impl Study {
    /// Returns the cheapest choice whose distribution fits at all sizes and seeds, or the cheapest
    /// of all if none fits.
    pub fn recommended(&self) -> Option<&Choice> {
        self.choices.iter().find(|choice| choice.is_sound()).or(self.choices.first())
    }

    /// Explains the choice, and why it beats the usual defaults.
    pub fn reasons(&self) -> Vec<String> {
        let Some(winner) = self.recommended() else {
            let reason = match self.interruption {
                Some(_) => "stopped before any function was measured",
                None => "no function does what is asked",
            };
            return vec![reason.to_owned()];
        };
        let mut reasons = vec![why(winner)];
        reasons.extend(self.passed_over(winner));
        reasons.extend(self.ties(winner));
        reasons.extend(self.untimed(winner));
        reasons.extend(POPULAR.iter().filter_map(|&(name, known_as)| {
            (name != winner.hash).then(|| self.why_not(name, known_as, winner)).flatten()
        }));
        reasons
    }

    /// Explains why cheaper ones lost.
    fn passed_over(&self, winner: &Choice) -> Option<String> {
        let is_cheaper = |choice: &&Choice| choice.is_timed && choice.lookup_ns < winner.lookup_ns;
        let cheaper: Vec<&Choice> = self.choices.iter().filter(is_cheaper).collect();
        let cheapest =
            cheaper.iter().min_by(|one, other| one.lookup_ns.total_cmp(&other.lookup_ns))?;
        let more = cheaper.len() - 1;
        let (others, whose) = match more {
            0 => (" is".to_owned(), "its distribution is"),
            _ => (format!(" and {more} more are"), "their distributions are"),
        };
        Some(format!(
            "{}{others} cheaper on these keys at this size, but at some size or seed {whose} not \
             that of an ideal hash",
            cheapest.named()
        ))
    }

    fn ties(&self, winner: &Choice) -> Option<String> {
        let is_tie = |choice: &&Choice| {
            choice.is_sound()
                && choice.hash != winner.hash
                && choice.lookup_ns <= winner.lookup_ns * TIE
        };
        let mut names: Vec<&str> = Vec::new();
        for choice in self.choices.iter().filter(is_tie) {
            if !names.contains(&choice.hash.as_str()) {
                names.push(&choice.hash);
            }
        }
        if names.is_empty() {
            return None;
        }
        let percent = 100.0 * (TIE - 1.0);
        Some(format!("as good within {percent:.0} %: {}", names.join(", ")))
    }

    /// Says what functions are worth whose own time is not known.
    fn untimed(&self, winner: &Choice) -> Vec<String> {
        let mut seen = Vec::new();
        let mut words = Vec::new();
        for choice in self.choices.iter().filter(|choice| !choice.is_timed) {
            if seen.contains(&&choice.hash) {
                continue;
            }
            seen.push(&choice.hash);
            let allowed_ns = winner.lookup_ns - choice.lookup_ns;
            words.push(match choice.grade() {
                Grade::Fits if allowed_ns > 0.0 => format!(
                    "{} fits as well, at all sizes and seeds; its time is not known: take it if it \
                     hashes a key in less than {allowed_ns:.1} ns",
                    choice.named()
                ),
                grade => format!(
                    "not {}, whose time is not known: {} at {} buckets, where a hit costs x{}",
                    choice.named(),
                    grade.word(),
                    grouped(choice.worst_bucket_count),
                    fixed(choice.cost_ratio, 2)
                ),
            });
        }
        words
    }

    fn why_not(&self, name: &str, known_as: &str, winner: &Choice) -> Option<String> {
        let specimen = Specimen::by_name(name).ok()?;
        if let Some(refusal) = refusal(self.wishes, specimen) {
            return Some(format!("not {name} ({known_as}): {refusal}"));
        }
        let best = self.choices.iter().find(|choice| choice.hash == name)?;
        let reason = match best.manner {
            Manner::Structured => "it is structured: it keeps a structure of these keys, which \
                                   others will not have"
                .to_owned(),
            Manner::Slight | Manner::FailsElsewhere | Manner::Worse => format!(
                "at {} buckets a hit costs x{}",
                grouped(best.worst_bucket_count),
                fixed(best.cost_ratio, 2)
            ),
            Manner::Fits if best.lookup_ns <= winner.lookup_ns * TIE => return None,
            Manner::Fits => format!(
                "it takes {:.1} ns a key, {:.1} more",
                best.hash_ns,
                best.hash_ns - winner.hash_ns
            ),
        };
        Some(format!("not {name} ({known_as}): {reason}"))
    }
}

fn why(winner: &Choice) -> String {
    let distribution = match winner.manner {
        Manner::Fits => format!(
            "over {} sizes and seeds it is indistinguishable from an ideal hash",
            winner.trial_count
        ),
        Manner::Structured => "it is structured on these keys, as all others that are as cheap; \
                               test it on other keys"
            .to_owned(),
        Manner::Slight | Manner::FailsElsewhere | Manner::Worse => format!(
            "none fits at all sizes; its worst is x{} at {} buckets",
            fixed(winner.cost_ratio, 2),
            grouped(winner.worst_bucket_count)
        ),
    };
    format!(
        "take {}: {:.1} ns for the hash and {:.2} cache lines of {:.1} ns are {:.1} ns a lookup, \
         and {distribution}",
        winner.named(),
        winner.hash_ns,
        winner.line_count,
        winner.line_ns,
        winner.lookup_ns
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{KeyFacts, Machine, Program};

    fn distribution(name: &str, reduction: Reduction, keys: &[Vec<u8>]) -> Distribution {
        let specimen = Specimen::by_name(name).unwrap();
        let mut distribution = Distribution::new(specimen, reduction, keys.len() as u64).unwrap();
        let seeds = if specimen.seeding() == Seeding::None { &SEEDS[..1] } else { &SEEDS[..] };
        for &seed in seeds {
            let hashes: Vec<u64> = keys.iter().map(|key| specimen.hash(key, seed)).collect();
            distribution.add(&hashes);
        }
        distribution
    }

    fn line() -> Spread {
        Spread { median: 10.0, ..Spread::default() }
    }

    fn numbered() -> Vec<Vec<u8>> {
        (0..20_000).map(|n| format!("key{n:06}").into_bytes()).collect()
    }

    #[test]
    fn a_good_hash_fits_and_costs_what_an_ideal_one_does() {
        for reduction in REDUCTIONS {
            let distribution = distribution("xxh3-64", reduction, &numbered());
            let specimen = Specimen::by_name("xxh3-64").unwrap();
            let choice = distribution.choice(specimen, Some(5.0), &line());
            assert_eq!((choice.manner, choice.trial_count), (Manner::Fits, 21), "{choice:?}");
            // A bucket that has been divided counts less than a whole one.
            let by_chance = (20_000.0 - 1.0) / (2.0 * choice.bucket_count as f64);
            let found = choice.line_count - 2.0;
            assert!((0.999..1.15).contains(&(found / by_chance)), "{choice:?}");
            assert!((choice.lookup_ns - 5.0 - 10.0 * choice.line_count).abs() < 1e-9);
            assert_eq!(choice.caution, "not against hostile keys");
        }
    }

    #[test]
    fn the_byte_sum_pays_for_its_worst_size() {
        let distribution = distribution("netbsd-byte-sum", Reduction::LowMask, &numbered());
        let specimen = Specimen::by_name("netbsd-byte-sum").unwrap();
        let choice = distribution.choice(specimen, Some(5.0), &line());
        assert_eq!((choice.manner, choice.trial_count), (Manner::Worse, 7));
        assert_eq!(choice.worst_bucket_count, 32_768 << SIZES, "{choice:?}");
        assert!(choice.cost_ratio > 50.0 && choice.line_count > 50.0, "{choice:?}");
    }

    /// Numbers with 12 equal low bits, as addresses have: the low mask fails, the high shift of a
    /// product does not.
    #[test]
    fn sizes_that_were_not_asked_for_count() {
        let keys: Vec<Vec<u8>> =
            (0..4096_u64).map(|n| (n * n * 977).to_le_bytes().to_vec()).collect();
        let distribution = distribution("rustc-hash", Reduction::LowMask, &keys);
        let sizes = distribution.bucket_counts();
        assert_eq!(sizes, [512, 1024, 2048, 4096, 8192, 16_384, 32_768]);
        let mut range = distribution.clone();
        range.reduction = Reduction::Range;
        assert_eq!(range.bucket_counts(), [682, 1365, 2730, 4096, 10_922, 21_845, 43_690]);
        assert_eq!(distribution.trial_count, 21);
    }

    #[test]
    fn small_and_large_tables_leave_out_sizes_that_cannot_be() {
        let specimen = Specimen::by_name("xxh3-64").unwrap();
        let sizes = |bucket_count| {
            Distribution::new(specimen, Reduction::LowMask, bucket_count).unwrap().bucket_counts()
        };
        assert_eq!(sizes(1), [1, 2, 4, 8]);
        assert_eq!(sizes(1 << 32), [1 << 29, 1 << 30, 1 << 31, 1 << 32]);
        assert!(Distribution::new(specimen, Reduction::LowMask, 1 << 33).is_err());
    }

    #[test]
    fn the_memory_of_the_counters_is_that_of_the_largest_table_tried() {
        assert_eq!(counter_bytes_max(1024), 4 * (8192 + 8192 / 3), "range and split");
        assert_eq!(counter_bytes_max(1025), 4 * 16_384, "masks");
        assert_eq!(counter_bytes_max(1 << 32), 4 << 32);
        assert_eq!(counter_bytes_max(u64::MAX), 0);
        for specimen in ["xxh3-64", "fnv1a-32"].map(|name| Specimen::by_name(name).unwrap()) {
            for bucket_count in (1..100).chain([1023, 1024, 1025, 50_000, 65_536, 65_537]) {
                let largest = REDUCTIONS.iter().flat_map(|&reduction| {
                    Distribution::new(specimen, reduction, bucket_count).unwrap().bucket_counts()
                });
                assert_eq!(Some(counter_bytes_max(bucket_count) / 4), largest.max());
            }
        }
    }

    #[test]
    fn wishes_refuse_by_the_facts_of_the_function() {
        let refused = |name, on_disk, hostile| {
            refusal(Wishes { on_disk, hostile }, Specimen::by_name(name).unwrap()).is_some()
        };
        assert!(!refused("foldhash-fast", false, false) && refused("foldhash-fast", true, false));
        assert!(refused("xxh3-64", false, true) && !refused("xxh3-64", true, false));
        assert!(!refused("siphash-1-3", true, true) && !refused("highwayhash-64", true, true));
    }

    #[test]
    fn the_cheapest_sound_choice_is_taken_and_the_popular_ones_get_their_reason() {
        let keys = numbered();
        let mut study = Study::new(Program::default(), Machine::default(), KeyFacts::default());
        for (name, hash_ns) in
            [("netbsd-byte-sum", 1.0), ("rapidhash-v3", 2.0), ("siphash-1-3", 30.0)]
        {
            let distribution = distribution(name, Reduction::LowMask, &keys);
            let specimen = Specimen::by_name(name).unwrap();
            study.choices.push(distribution.choice(specimen, Some(hash_ns), &line()));
        }
        // It is cheaper than the others that were measured and does not fit.
        let structured = Choice {
            hash: "rustc-hash".to_owned(),
            manner: Manner::Structured,
            lookup_ns: 1.0,
            ..study.choices[1].clone()
        };
        study.choices.push(structured);
        rank(&mut study.choices);
        let ranked: Vec<&str> = study.choices.iter().map(|choice| choice.hash.as_str()).collect();
        assert_eq!(ranked, ["rapidhash-v3", "siphash-1-3", "rustc-hash", "netbsd-byte-sum"]);
        assert_eq!(study.recommended().map(|choice| choice.hash.as_str()), Some("rapidhash-v3"));
        let reasons = study.reasons();
        assert_eq!(
            reasons[1],
            "rustc-hash with `low` is cheaper on these keys at this size, but at some size or \
             seed its distribution is not that of an ideal hash"
        );
        assert!(reasons[0].starts_with("take rapidhash-v3 with `low`: 2.0 ns"), "{reasons:?}");
        assert!(reasons.iter().any(|reason| reason.starts_with("not siphash-1-3")), "{reasons:?}");
        study.wishes.hostile = true;
        let reasons = study.reasons();
        assert!(
            reasons.iter().any(|reason| reason.starts_with("not fnv1a-64 (FNV-1a): it has no"))
        );
        study.choices.clear();
        assert_eq!(study.reasons(), ["no function does what is asked"]);
    }
}
