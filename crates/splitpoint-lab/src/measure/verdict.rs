//! The verdict on a measurement in words, with what is to blame and what to do.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Report;
use crate::key_positions::{Fault, bits_in_words};
use crate::number::{counted, fixed, grouped, p_is};
use crate::occupancy::{Occupancy, Test};
use crate::partial::{PartialStats, by_size, keys_by_bucket};
use crate::probability::{bits_of, sidak};
use crate::reduction::{Reduction, prime_at_least};

/// Cost of a hit, in units of the ideal, below which a hash that is worse than chance may do.
const SLIGHT_COST: f64 = 1.05;
/// Coin tosses of a p value that rules out chance. `SMHasher3` fails a function at the same value.
pub(crate) const FAILURE_BITS: f64 = 20.0;
/// Number of p values of which the smallest decides whether a hash is worse than random, and of
/// those that decide whether it is structured.
const DECIDING_TESTS: f64 = 2.0;

/// The verdict on a hash, for these keys at this size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// Indistinguishable from an ideal hash.
    Fits,
    /// Not random, though no worse, because the hash keeps a structure of the keys.
    Structured,
    /// Less even than chance allows.
    Worse {
        /// Cost of a hit in units of the ideal.
        cost_ratio: f64,
    },
}

/// A verdict in one word, the same in every table, page and text; the better ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// [`Verdict::Fits`].
    Fits,
    /// [`Verdict::Structured`].
    Structured,
    /// [`Verdict::Worse`], but a hit costs less than 1.05 times the ideal.
    Slight,
    /// [`Verdict::Worse`], by more.
    Worse,
}

impl Grade {
    /// Returns the word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Structured => "structured",
            Self::Slight => "slight",
            Self::Worse => "worse",
        }
    }

    /// Returns whether it is less even than chance allows, slightly or not.
    pub fn is_worse(self) -> bool {
        self >= Self::Slight
    }
}

impl Verdict {
    /// Returns the word for it.
    pub fn grade(&self) -> Grade {
        match self {
            Self::Fits => Grade::Fits,
            Self::Structured => Grade::Structured,
            Self::Worse { .. } if self.is_slight() => Grade::Slight,
            Self::Worse { .. } => Grade::Worse,
        }
    }

    /// Returns whether it is worse than chance, but so little that a hit hardly costs more. Chance
    /// is still ruled out, and the next keys of this kind may do worse.
    pub fn is_slight(&self) -> bool {
        matches!(self, Self::Worse { cost_ratio } if *cost_ratio < SLIGHT_COST)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fits => f.write_str("fits"),
            Self::Structured => {
                f.write_str("structured: no worse than random, but will not survive other keys")
            }
            Self::Worse { cost_ratio } => {
                let word = self.grade().word();
                let cost = fixed(*cost_ratio, 2);
                write!(f, "{word}: less even than chance allows, a hit costs x{cost}")
            }
        }
    }
}

/// The verdict in sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// The verdict, with the tests behind it.
    pub verdict: String,
    /// What is to blame, or may become a problem.
    pub blame: Vec<String>,
    /// What to do about it.
    pub advice: Vec<String>,
}

/// The cost of the same hashes with another reduction, in a table of about the same size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// The reduction.
    pub reduction: String,
    /// Buckets of the table.
    pub bucket_count: u64,
    /// Cost of a hit in units of the ideal.
    pub cost_ratio: f64,
    /// The verdict on it.
    pub verdict: Verdict,
}

/// What decides on a verdict: the one place that makes it, for every command.
///
/// Only the statistics of the buckets decide, because a table may work well although some hashes
/// are equal, or some bits that the reduction does not use are dead. A p value decides below
/// `2^-FAILURE_BITS`, after correction for the tests of its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    /// The smaller p value of a spread as uneven and of a bucket as full, corrected.
    pub(crate) worse_p: f64,
    /// The smaller p value of a spread as even and of the fit of the sizes, corrected.
    pub(crate) structured_p: f64,
    /// Probability that an ideal hash spreads the keys as evenly, corrected.
    even_p: f64,
    cost_ratio: f64,
}

impl Evidence {
    /// Returns the evidence of the sizes of the buckets.
    pub(crate) fn of(occupancy: &Occupancy) -> Self {
        let longest_p = occupancy.ideal().longest_at_least(occupancy.longest());
        let even_and_fit = [occupancy.even_p(), fit_p(occupancy.fit())];
        Self::new([occupancy.spread_p(), longest_p], even_and_fit, occupancy.cost_ratio())
    }

    /// `worse` are the p values of spread and fullest bucket, `structured` of evenness and fit.
    fn new(worse: [f64; 2], structured: [f64; 2], cost_ratio: f64) -> Self {
        let least = |[one, other]: [f64; 2]| sidak(one.min(other), DECIDING_TESTS);
        let even_p = sidak(structured[0], DECIDING_TESTS);
        Self { worse_p: least(worse), structured_p: least(structured), even_p, cost_ratio }
    }

    fn is_too_even(&self) -> bool {
        is_beyond_chance(self.even_p)
    }

    /// Returns the verdict.
    pub(crate) fn judge(&self) -> Verdict {
        if is_beyond_chance(self.worse_p) {
            Verdict::Worse { cost_ratio: self.cost_ratio }
        } else if is_beyond_chance(self.structured_p) {
            Verdict::Structured
        } else {
            Verdict::Fits
        }
    }
}

fn is_beyond_chance(p: f64) -> bool {
    bits_of(p) > FAILURE_BITS
}

fn fit_p(fit: Option<Test>) -> f64 {
    fit.map_or(1.0, |fit| fit.p)
}

/// Counts the kept hashes with other reductions; returns nothing if some were not kept.
pub(super) fn alternatives(stats: &PartialStats) -> Vec<Alternative> {
    let reducer = stats.setup().reducer();
    if !stats.has_all_hashes() {
        return Vec::new();
    }
    let own = match reducer.reduction() {
        Reduction::Hashbrown => Reduction::LowMask,
        other => other,
    };
    let others =
        [Reduction::LowMask, Reduction::HighShift, Reduction::Range, Reduction::PrimeModulus];
    let of_reduction = |reduction: Reduction| {
        let bucket_count = match reduction {
            Reduction::PrimeModulus => prime_at_least(reducer.bucket_count()),
            _ if reduction.needs_power_of_two() => 1 << reducer.bucket_count().ilog2(),
            _ => reducer.bucket_count(),
        };
        let other = reduction.prepare(reducer.width_bits(), bucket_count).ok()?;
        let counters = keys_by_bucket(other, stats.hashes());
        let occupancy = Occupancy::uniform(by_size(counters.into_iter().map(u64::from)));
        let cost_ratio = occupancy.cost_ratio();
        let verdict = Evidence::of(&occupancy).judge();
        Some(Alternative { reduction: reduction.to_string(), bucket_count, cost_ratio, verdict })
    };
    others.into_iter().filter(|&reduction| reduction != own).filter_map(of_reduction).collect()
}

impl Report {
    pub(crate) fn evidence(&self) -> Evidence {
        let worse = [self.spread_p, self.longest_p];
        Evidence::new(worse, [self.even_p, fit_p(self.fit)], self.cost_ratio)
    }

    /// Returns whether the keys are spread more evenly than by chance.
    pub(crate) fn is_too_even(&self) -> bool {
        self.evidence().is_too_even()
    }

    pub(super) fn judge(&self) -> Verdict {
        self.evidence().judge()
    }

    /// Returns whether so few keys can show no function to be worse: chance explains even that all of
    /// them are in one bucket.
    pub(crate) fn has_too_few_keys(&self) -> bool {
        let further_keys = self.key_count.saturating_sub(1) as f64;
        let bits = further_keys * (self.bucket_count.max(1) as f64).log2();
        // More keys in one bucket show nothing either.
        let would_more_show = self.bucket_count > 1 || self.key_count < 2;
        would_more_show && bits < FAILURE_BITS + DECIDING_TESTS.log2()
    }

    pub(crate) fn put_into_words(&self) -> Words {
        Words { verdict: self.verdict_in_words(), blame: self.blamed(), advice: self.advice() }
    }

    fn verdict_in_words(&self) -> String {
        let (evidence, buckets) = (self.evidence(), counted(self.bucket_count, "bucket"));
        let tests = |p: f64| format!("{} over {DECIDING_TESTS} tests", p_is(p));
        let (worse, structured) = (tests(evidence.worse_p), tests(evidence.structured_p));
        match self.verdict {
            Verdict::Fits => {
                format!("fits: indistinguishable from an ideal hash at {buckets} ({worse})")
            }
            Verdict::Structured if evidence.is_too_even() => {
                format!(
                    "structured at {buckets}: the keys are spread more evenly than by \
                     chance ({structured}); they have a structure, the hash keeps it, and this \
                     will not survive other keys"
                )
            }
            Verdict::Structured => {
                format!(
                    "structured at {buckets}: a hit costs no more than with an ideal hash, \
                     but the sizes of the buckets are not those of chance ({structured}); this \
                     will not survive other keys"
                )
            }
            Verdict::Worse { cost_ratio } => format!(
                "{} by x{} at {buckets}: a hit looks at {} keys, with an ideal hash at \
                 {:.2}, and the fullest bucket holds {}, ideally {:.1} ({worse})",
                self.verdict.grade().word(),
                fixed(cost_ratio, 2),
                fixed(self.probes_hit, 2),
                self.probes_hit_ideal,
                grouped(self.longest),
                self.longest_ideal
            ),
        }
    }

    fn blamed(&self) -> Vec<String> {
        let mut blamed = Vec::new();
        if self.reachable_count < self.bucket_count {
            blamed.push(format!(
                "the reduction `{}` reaches {} of {} buckets ({:.1} %) with a hash of {} bits: the \
                 others stay empty, whatever the keys",
                self.reduction,
                grouped(self.reachable_count),
                grouped(self.bucket_count),
                100.0 * self.reachable_count as f64 / self.bucket_count as f64,
                self.width_bits
            ));
        }
        if self.verdict != Verdict::Fits {
            self.blame_the_hash(&mut blamed);
            self.blame_the_keys(&mut blamed);
        }
        for collisions in &self.collisions {
            if bits_of(collisions.p) > FAILURE_BITS {
                let bits = match &*collisions.window {
                    "all" => format!("all {} bits", collisions.width_bits),
                    "high 32" | "low 32" => format!("the {} bits", collisions.window),
                    window => format!("bits {window}"),
                };
                blamed.push(format!(
                    "{} of keys have hashes that are equal in {bits}, where {} expected ({}, \
                     {}): a table of any size that takes its buckets from these bits cannot part \
                     them",
                    counted(collisions.pair_count, "pair"),
                    expected(collisions.pair_count_ideal),
                    p_is(collisions.p),
                    counted(collisions.test_count, "test")
                ));
                // The other windows would repeat it.
                break;
            }
        }
        blamed
    }

    fn blame_the_hash(&self, blamed: &mut Vec<String>) {
        // With few keys a bit may well be the same in all by chance.
        let dead = self.bits_never_set | self.bits_always_set;
        if dead != 0 && self.key_count >= 64 {
            let dead = (0..64).filter(|bit| dead >> bit & 1 == 1);
            let dead: Vec<String> = ranges(dead).collect();
            blamed.push(format!("bits {} of the hash are the same for all keys", dead.join(", ")));
        }
        if let Some(pair) = self.worst_pair.filter(|pair| bits_of(pair.p) > FAILURE_BITS) {
            let [low, high] = pair.bits;
            blamed.push(format!(
                "bits {low} and {high} of the hash go together (correlation {:+.2}, {} over {})",
                pair.phi,
                p_is(pair.p),
                counted(pair.test_count, "test")
            ));
        }
    }

    fn blame_the_keys(&self, blamed: &mut Vec<String>) {
        let Some(blame) = &self.blame else { return };
        let of = |fault: Fault| {
            Some(blame.with(fault)).filter(|bits| !bits.is_empty()).map(|bits| bits_in_words(&bits))
        };
        if let Some(bits) = of(Fault::Unused) {
            blamed.push(format!(
                "{bits} of the key differ between the keys but never reach the bucket number"
            ));
        }
        if let Some(bits) = of(Fault::Rare) {
            blamed.push(format!(
                "{bits} of the key change the bucket less than half as often as they should"
            ));
        }
        if let Some(bits) = of(Fault::Additive) {
            let additive = blame.bits.iter().filter(|bit| bit.fault == Fault::Additive);
            let most = additive.max_by_key(|bit| bit.distance_count);
            let (found, ideal) =
                most.map_or((0, 0.0), |bit| (bit.distance_count, bit.distance_count_ideal));
            blamed.push(format!(
                "{bits} of the key move a key by a few distances only when they change ({found} at \
                 most, {ideal:.0} are ideal), so that changes of other bits undo it"
            ));
        }
        if blame.tested_count == 0 && blame.varied_count > 0 {
            blamed.push(
                "which bits of the key do it cannot be said: only the hashes of the keys are known, \
                 and none of keys with one bit flipped; give the function itself, by \
                 --hash-command or --hash-library"
                    .to_owned(),
            );
        } else if blame.bits.is_empty() {
            blamed.push(format!(
                "no single bit is to blame: each of the {} bits tested of the {} in which the keys \
                 differ moves them as it should",
                grouped(blame.tested_count),
                grouped(blame.varied_count)
            ));
        }
    }

    fn advice(&self) -> Vec<String> {
        let another = "take a function that mixes all bits of the key, such as `rapidhash-v3` or \
                       `xxh3-64`, or `siphash-1-3` with a secret seed if others choose the keys; \
                       `splitpoint lab recommend` weighs their time on these keys";
        match self.verdict {
            Verdict::Fits if self.reachable_count < self.bucket_count => {
                vec!["choose a smaller table or another reduction: see above".to_owned()]
            }
            Verdict::Fits => Vec::new(),
            Verdict::Structured => vec![format!(
                "keep it if all keys will be of this kind and of these sizes, which `splitpoint \
                 lab sweep` tries; else {another}"
            )],
            Verdict::Worse { .. } => {
                let mut advice = Vec::new();
                if self.verdict.is_slight() {
                    advice.push(
                        "it may do, since a hit hardly costs more; but the next keys of this kind \
                         may do worse, and if that matters, read on"
                            .to_owned(),
                    );
                }
                let fitting =
                    |other: &&Alternative| !matches!(other.verdict, Verdict::Worse { .. });
                let cheapest = |one: &&Alternative, other: &&Alternative| {
                    one.cost_ratio.total_cmp(&other.cost_ratio)
                };
                let is_structured = |other: &Alternative| other.verdict == Verdict::Structured;
                let best = self.alternatives.iter().filter(fitting).min_by(|one, other| {
                    is_structured(one).cmp(&is_structured(other)).then(cheapest(one, other))
                });
                if let Some(Alternative { reduction, bucket_count, cost_ratio, .. }) = best {
                    advice.push(format!(
                        "the reduction is to blame more than the function: by `{reduction}` with \
                         {} buckets the same hashes cost x{} of the ideal",
                        grouped(*bucket_count),
                        fixed(*cost_ratio, 2)
                    ));
                    advice.push(format!("or {another}"));
                } else if let Some(best) = self.alternatives.iter().min_by(cheapest) {
                    advice.push(format!(
                        "no other reduction helps (the best is `{}`, x{}): {another}",
                        best.reduction,
                        fixed(best.cost_ratio, 2)
                    ));
                } else {
                    advice.push(another.to_owned());
                }
                advice
            }
        }
    }
}

/// Returns rising numbers as `3` and `5 to 9`.
fn ranges(numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = String> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges.into_iter().map(|(first, last)| {
        if first == last { first.to_string() } else { format!("{first} to {last}") }
    })
}

/// Returns `12.3 are`, and `hardly any is` for less than a twentieth.
fn expected(pair_count: f64) -> String {
    match pair_count {
        ..0.05 => "hardly any is".to_owned(),
        _ => format!("{pair_count:.1} are"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyPositions, KeySample, Setup, Specimen};

    fn report(keys: &[Vec<u8>], name: &str, reduction: Reduction, buckets: u64) -> Report {
        let setup = Setup::new(Specimen::by_name(name).unwrap(), 0, reduction, buckets).unwrap();
        let stats = setup.count(keys.iter().map(Vec::as_slice));
        let (mut report, mut positions) = (Report::new(&stats), KeyPositions::default());
        for key in keys {
            positions.add(key);
        }
        let sample = KeySample::of(256, keys.iter().map(Vec::as_slice));
        report.find_blame(&stats, &positions, &sample);
        report
    }

    fn numbers(count: u32, step: u32) -> Vec<Vec<u8>> {
        (0..count).map(|n| (n * step).to_le_bytes().to_vec()).collect()
    }

    #[track_caller]
    fn check(report: &Report, verdict: &str, blame: &[&str], advice: &str) {
        let Words { verdict: said, blame: blamed, advice: advised } = &report.words;
        assert!(said.starts_with(verdict), "{:#?}", report.words);
        for needle in blame {
            assert!(blamed.iter().any(|text| text.contains(needle)), "{needle}: {blamed:#?}");
        }
        assert!(advised.join("\n").contains(advice), "{advised:#?}");
    }

    /// Inode numbers that all end in the same 16 bits, in a table that takes these: the function
    /// passes the others on, and another reduction would use them.
    #[test]
    fn a_reduction_that_drops_the_bits_that_differ_is_to_blame() {
        check(
            &report(&numbers(5000, 1 << 16), "linux-uid", Reduction::LowMask, 8192),
            "worse by x",
            &["bits 0 to 4 of byte 3 of the key differ between the keys but never reach"],
            "the reduction is to blame more than the function: by `",
        );
    }

    #[test]
    fn a_sum_of_bytes_is_to_blame_itself() {
        let keys: Vec<Vec<u8>> = (0..5000).map(|n| format!("a{n:06}").into_bytes()).collect();
        check(
            &report(&keys, "netbsd-byte-sum", Reduction::LowMask, 8192),
            "worse by x",
            &["undo it", "of the hash are the same for all keys", "equal in all 32 bits"],
            "no other reduction helps",
        );
    }

    #[test]
    fn keys_that_count_up_are_structured_and_an_ideal_hash_fits() {
        let keys = numbers(50_000, 1);
        check(
            &report(&keys, "linux-uid", Reduction::LowMask, 1 << 16),
            "structured at 65,536 buckets: the keys are spread more evenly",
            &[],
            "keep it if all keys will be of this kind",
        );
        let fits = report(&keys, "siphash-1-3", Reduction::LowMask, 1 << 16);
        check(&fits, "fits: indistinguishable from an ideal hash at 65,536 buckets (p = ", &[], "");
        assert_eq!((&fits.blame, fits.words.blame.len(), fits.words.advice.len()), (&None, 0, 0));
    }

    #[test]
    fn buckets_out_of_reach_are_named() {
        check(
            &report(&numbers(30_000, 7919), "linux-hash32", Reduction::Shift(17), 1 << 17),
            "slight by x1.02",
            &["`shift:17` reaches 32,768 of 131,072 buckets (25.0 %) with a hash of 32 bits"],
            "the same hashes cost x",
        );
    }
}
