//! What each byte of the keys holds, a sample of the keys, and which of their bits never reach the
//! bucket number, or reach it badly.
//!
//! # Invariants
//!
//! - [`KeyPositions`] and [`KeySample`] of parts of the keys, merged in any order, equal those of
//!   all keys.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::keys::KeyBatch;
use crate::partial::{Setup, mixed};

/// Bytes of a key that are examined, from its start.
pub const OFFSETS_MAX: usize = 256;
/// Longest key that a sample takes.
const SAMPLE_KEY_BYTES_MAX: usize = 1024;

/// The bytes of the keys at one offset.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyPosition {
    /// Bytes from the start.
    pub offset: u64,
    /// Keys that are long enough to have it.
    pub key_count: u64,
    /// Different bytes there.
    pub distinct_count: u64,
    /// Shannon's entropy of the byte there, 0 to 8.
    pub entropy_bits: f64,
    /// Bits that are the same in all of those keys.
    pub constant_mask: u8,
}

/// Counts of the bytes at each offset of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPositions {
    counts: Vec<[u64; 256]>,
}

impl KeyPositions {
    /// Counts the first [`OFFSETS_MAX`] bytes of one key.
    pub fn add(&mut self, key: &[u8]) {
        let length = key.len().min(OFFSETS_MAX);
        if self.counts.len() < length {
            self.counts.resize(length, [0; 256]);
        }
        for (counts, &byte) in self.counts.iter_mut().zip(key) {
            counts[usize::from(byte)] += 1;
        }
    }

    /// Adds the counts of other keys.
    pub fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), [0; 256]);
        }
        for (ours, theirs) in self.counts.iter_mut().zip(&other.counts) {
            for (count, other) in ours.iter_mut().zip(theirs) {
                *count += other;
            }
        }
    }

    /// Returns the facts of each offset, from the start of the keys.
    pub fn finish(&self) -> Vec<KeyPosition> {
        (0..).zip(&self.counts).map(|(offset, counts)| position(offset, counts)).collect()
    }

    /// Returns the bits that differ between keys, the lowest of the first byte first.
    pub fn varied_bits(&self) -> Vec<u64> {
        let of_place = |at: KeyPosition| {
            (0..8)
                .filter(move |bit| at.constant_mask >> bit & 1 == 0)
                .map(move |b| at.offset * 8 + b)
        };
        self.finish().into_iter().flat_map(of_place).collect()
    }
}

fn position(offset: u64, counts: &[u64; 256]) -> KeyPosition {
    let key_count: u64 = counts.iter().sum();
    let (mut always, mut ever, mut entropy_bits) = (0xff_u8, 0_u8, 0.0);
    for (byte, &count) in (0_u8..=255).zip(counts).filter(|(_, count)| **count > 0) {
        always &= byte;
        ever |= byte;
        let share = count as f64 / key_count as f64;
        entropy_bits -= share * share.log2();
    }
    KeyPosition {
        offset,
        key_count,
        distinct_count: counts.iter().filter(|&&count| count > 0).count() as u64,
        entropy_bits: f64::max(entropy_bits, 0.0),
        constant_mask: always | !ever,
    }
}

/// A sample of the keys that does not depend on their order: those with the lowest fingerprints.
///
/// It skips keys of over 1 KiB, which bounds its memory.
///
/// # Source
///
/// Broder, "On the resemblance and containment of documents", 1997: the bottom-k sketch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySample {
    key_count_max: usize,
    keys: BTreeSet<(u64, Vec<u8>)>,
}

impl KeySample {
    /// Returns a sample that takes up to `key_count_max` keys.
    pub fn new(key_count_max: usize) -> Self {
        Self { key_count_max, keys: BTreeSet::new() }
    }

    /// Takes a sample of keys.
    ///
    /// # Examples
    ///
    /// ```
    /// let sample = splitpoint_lab::KeySample::of(2, ["a", "b", "c"].map(str::as_bytes));
    /// assert_eq!(sample.keys().count(), 2);
    /// ```
    pub fn of<'k>(key_count_max: usize, keys: impl IntoIterator<Item = &'k [u8]>) -> Self {
        let mut sample = Self::new(key_count_max);
        for key in keys {
            sample.add(key);
        }
        sample
    }

    /// Offers one key.
    pub fn add(&mut self, key: &[u8]) {
        if key.len() > SAMPLE_KEY_BYTES_MAX || self.key_count_max == 0 {
            return;
        }
        // Unlike any function under study.
        let print = mixed(rapidhash::v3::rapidhash_v3(key) ^ 0x5a3e_91c4_07bd_26f8);
        if self.keys.len() == self.key_count_max {
            let last = self.keys.last().map(|(print, _)| *print);
            if last.is_some_and(|last| print > last) {
                return;
            }
        }
        self.keys.insert((print, key.to_vec()));
        if self.keys.len() > self.key_count_max {
            self.keys.pop_last();
        }
    }

    /// Adds the sample of other keys.
    pub fn merge(&mut self, other: &Self) {
        self.keys.extend(other.keys.iter().cloned());
        while self.keys.len() > self.key_count_max {
            self.keys.pop_last();
        }
    }

    /// Returns the keys.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.keys.iter().map(|(_, key)| key.as_slice())
    }
}

/// How a bit of the key fails to reach the bucket number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Flipping it never changes the bucket.
    Unused,
    /// Flipping it changes the bucket less than half as often as it should.
    Rare,
    /// Flipping it moves a key by one of a few distances only, whatever the rest of the key, so a
    /// change of other bits can undo it.
    Additive,
}

/// A bit of the keys that does not reach the bucket number as it should.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BitBlame {
    /// The bit, from the lowest of the first byte.
    pub key_bit: u64,
    /// The failure.
    pub fault: Fault,
    /// Keys in which the lab flipped it.
    pub sample_count: u64,
    /// Share of them that moved to another bucket.
    pub moved_share: f64,
    /// The same for an ideal hash.
    pub moved_share_ideal: f64,
    /// Different distances by which it moved them, as differences or as XORs of bucket numbers,
    /// whichever are fewer.
    pub distance_count: u64,
    /// The same for an ideal hash, on average.
    pub distance_count_ideal: f64,
}

/// Which bits of the keys do not reach the bucket number as they should.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blame {
    /// Bits that differ between keys, in their first 256 bytes.
    pub varied_count: u64,
    /// Those of them that the lab flipped; of a function that is known by its hashes alone those
    /// whose flips are keys as well.
    pub tested_count: u64,
    /// Those of them that do not reach the bucket number as they should.
    pub bits: Vec<BitBlame>,
}

/// Most bits that the lab flips.
const TESTED_MAX: usize = 1024;
/// Bits that are flipped before their keys are hashed.
const BITS_AT_ONCE: usize = 128;
/// Fewest keys with a bit before the lab judges it.
const FLIPPED_MIN: u64 = 64;

impl Blame {
    /// Flips each varying bit of the sampled keys, and compares their buckets.
    ///
    /// # Cost
    ///
    /// A hash for each of up to 1024 bits and each key of the sample that has it.
    pub fn new(setup: &Setup, positions: &KeyPositions, sample: &KeySample) -> Self {
        let varied = positions.varied_bits();
        let tested = &varied[..varied.len().min(TESTED_MAX)];
        let hashes = setup.specimen().hashes(sample.keys(), setup.seed());
        let mut blame = Self { varied_count: varied.len() as u64, ..Self::default() };
        for bits in tested.chunks(BITS_AT_ONCE) {
            for (bit, moves) in bits.iter().zip(moves(setup, bits, sample, &hashes)) {
                blame.tested_count += u64::from(moves.sample_count > 0);
                blame.bits.extend(moves.blame(*bit, setup.reducer().bucket_count()));
            }
        }
        blame
    }

    /// Returns the bits with this fault.
    pub fn with(&self, fault: Fault) -> Vec<u64> {
        self.bits.iter().filter(|bit| bit.fault == fault).map(|bit| bit.key_bit).collect()
    }
}

/// Where the keys go when one of their bits flips.
#[derive(Default)]
struct Moves {
    sample_count: u64,
    moved_count: u64,
    /// The differences of the bucket numbers, and their XORs.
    sums: BTreeSet<u64>,
    xors: BTreeSet<u64>,
}

/// Flips each of `bits` in all keys that have it. `hashes` are those of the keys as they are.
fn moves(setup: &Setup, bits: &[u64], sample: &KeySample, hashes: &[Option<u64>]) -> Vec<Moves> {
    let mut flipped = KeyBatch::default();
    let mut origins = Vec::new();
    for (of_bit, bit) in bits.iter().enumerate() {
        let (offset, mask) = ((bit / 8) as usize, 1_u8 << (bit % 8));
        for (key, hash) in sample.keys().zip(hashes).filter(|(key, _)| key.len() > offset) {
            flipped.push_flipped(key, offset, mask);
            origins.push((of_bit, *hash));
        }
    }
    let mut moves: Vec<Moves> = bits.iter().map(|_| Moves::default()).collect();
    let reached = setup.specimen().hashes(flipped.iter(), setup.seed());
    for ((of_bit, origin), hash) in origins.into_iter().zip(reached) {
        if let (Some(origin), Some(hash)) = (origin, hash) {
            moves[of_bit].add([origin, hash].map(|hash| setup.reducer().bucket_of(hash)), setup);
        }
    }
    moves
}

impl Moves {
    fn add(&mut self, [from, to]: [u64; 2], setup: &Setup) {
        let bucket_count = setup.reducer().bucket_count();
        self.sample_count += 1;
        self.moved_count += u64::from(from != to);
        self.sums.insert((to + bucket_count - from) % bucket_count);
        self.xors.insert(from ^ to);
    }

    fn blame(&self, key_bit: u64, bucket_count: u64) -> Option<BitBlame> {
        let Self { sample_count, moved_count, .. } = *self;
        if sample_count < FLIPPED_MIN || bucket_count < 2 {
            return None;
        }
        let (n, m) = (sample_count as f64, bucket_count as f64);
        let (moved_share, moved_share_ideal) = (moved_count as f64 / n, 1.0 - 1.0 / m);
        let distance_count = self.sums.len().min(self.xors.len()) as u64;
        let distance_count_ideal = m * -(n * (-1.0 / m).ln_1p()).exp_m1();
        let fault = if moved_count == 0 {
            Fault::Unused
        } else if moved_share < moved_share_ideal / 2.0 {
            Fault::Rare
        } else if (distance_count as f64) < distance_count_ideal / 8.0 {
            Fault::Additive
        } else {
            return None;
        };
        Some(BitBlame {
            key_bit,
            fault,
            sample_count,
            moved_share,
            moved_share_ideal,
            distance_count,
            distance_count_ideal,
        })
    }
}

/// Returns bits of a key in words, by their bytes: `bytes 0 to 3, bits 0 to 5 of byte 4`.
///
/// Bytes count from 0, and bits from the lowest of their byte. The list must rise.
pub fn bits_in_words(bits: &[u64]) -> String {
    // The bits of each byte; then bytes with the same ones that follow each other.
    let mut bytes: Vec<(u64, u8)> = Vec::new();
    for &bit in bits {
        let mask = 1_u8 << (bit % 8);
        match bytes.last_mut() {
            Some((byte, of_byte)) if *byte == bit / 8 => *of_byte |= mask,
            _ => bytes.push((bit / 8, mask)),
        }
    }
    let mut out = String::new();
    for run in bytes.chunk_by(|one, next| one.0 + 1 == next.0 && one.1 == next.1) {
        let ((first, mask), (last, _)) = (run[0], run[run.len() - 1]);
        if !out.is_empty() {
            out.push_str(", ");
        }
        if mask != 0xff {
            let numbers: Vec<u64> = (0..8).filter(|bit| mask >> bit & 1 == 1).collect();
            let _ = write!(out, "{} of ", range_in_words("bit", &numbers));
        }
        out.push_str(&range_in_words("byte", &(first..=last).collect::<Vec<u64>>()));
    }
    out
}

/// Returns `bit 3`, `bits 1 to 4`, or `bits 0, 2, 5`.
fn range_in_words(noun: &str, numbers: &[u64]) -> String {
    match numbers {
        [] => format!("no {noun}"),
        [one] => format!("{noun} {one}"),
        [first, .., last] if last - first + 1 == numbers.len() as u64 => {
            format!("{noun}s {first} to {last}")
        }
        _ => {
            let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
            format!("{noun}s {}", numbers.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reduction, Specimen};

    fn numbers(count: u32, step: u32) -> Vec<Vec<u8>> {
        (0..count).map(|n| (n * step).to_le_bytes().to_vec()).collect()
    }

    fn blame(keys: &[Vec<u8>], name: &str, reduction: Reduction, buckets: u64) -> Blame {
        let mut positions = KeyPositions::default();
        for key in keys {
            positions.add(key);
        }
        let sample = KeySample::of(256, keys.iter().map(Vec::as_slice));
        let setup = Setup::new(Specimen::by_name(name).unwrap(), 0, reduction, buckets).unwrap();
        Blame::new(&setup, &positions, &sample)
    }

    #[test]
    fn positions_hold_what_the_keys_hold() {
        let keys: [&[u8]; 4] = [b"a0", b"a1", b"b0", b"b1x"];
        let (mut left, mut right) = (KeyPositions::default(), KeyPositions::default());
        keys[..1].iter().for_each(|key| left.add(key));
        keys[1..].iter().for_each(|key| right.add(key));
        left.merge(&right);
        let found = left.finish();
        let [first, second, third] = &found[..] else { panic!("{found:?}") };
        assert_eq!((first.key_count, first.distinct_count, first.entropy_bits), (4, 2, 1.0));
        // `a` is 0x61 and `b` is 0x62.
        assert_eq!((first.constant_mask, second.constant_mask), (0xfc, 0xfe));
        assert_eq!((third.key_count, third.entropy_bits, third.constant_mask), (1, 0.0, 0xff));
        assert_eq!(left.varied_bits(), [0, 1, 8]);
    }

    #[test]
    fn a_sample_is_the_same_in_any_order_and_of_any_parts() {
        let keys = numbers(5000, 1);
        let of = |keys: &[Vec<u8>]| KeySample::of(100, keys.iter().map(Vec::as_slice));
        let all = of(&keys);
        let backwards: Vec<Vec<u8>> = keys.iter().rev().cloned().collect();
        assert_eq!(all, of(&backwards));
        let mut merged = of(&keys[..700]);
        merged.merge(&of(&keys[700..]));
        assert_eq!((all.keys().count(), &all), (100, &merged));
        assert_eq!(KeySample::of(9, [&[0_u8; 2000][..]]).keys().count(), 0);
    }

    /// Numbers whose low 16 bits are all alike, as in squashfs-tools issue 280, and a table that
    /// takes the low bits.
    #[test]
    fn bits_that_the_reduction_drops_are_to_blame() {
        let keys = numbers(1000, 1 << 16);
        let found = blame(&keys, "linux-uid", Reduction::LowMask, 128);
        assert_eq!(found.varied_count, 10);
        assert_eq!(found.with(Fault::Unused), (16..26).collect::<Vec<u64>>());
        let fine = blame(&keys, "siphash-1-3", Reduction::LowMask, 128);
        assert_eq!(fine.bits, []);
    }

    #[test]
    fn sums_of_bytes_are_additive_and_an_ideal_hash_is_not() {
        let keys: Vec<Vec<u8>> = (0..2000).map(|n| format!("key{n:05}").into_bytes()).collect();
        let found = blame(&keys, "netbsd-byte-sum", Reduction::LowMask, 1024);
        assert_eq!(found.with(Fault::Additive).len() as u64, found.varied_count);
        for seed in 0..20 {
            let mut positions = KeyPositions::default();
            for key in &keys {
                positions.add(key);
            }
            let sample = KeySample::of(256, keys.iter().map(Vec::as_slice));
            let sip = Specimen::by_name("siphash-1-3").unwrap();
            for buckets in [2, 16, 1024, 1 << 20] {
                let setup = Setup::new(sip, seed, Reduction::Range, buckets).unwrap();
                assert_eq!(Blame::new(&setup, &positions, &sample).bits, [], "{buckets} {seed}");
            }
        }
    }

    #[test]
    fn bits_are_told_by_their_bytes() {
        for (bits, expected) in [
            (vec![], ""),
            (vec![3], "bit 3 of byte 0"),
            ((0..32).collect(), "bytes 0 to 3"),
            ((0..13).collect(), "byte 0, bits 0 to 4 of byte 1"),
            (vec![0, 2, 5, 8, 10, 13], "bits 0, 2, 5 of bytes 0 to 1"),
        ] {
            assert_eq!(bits_in_words(&bits), expected);
        }
    }
}
