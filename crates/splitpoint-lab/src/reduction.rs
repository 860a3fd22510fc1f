//! Reductions of hashes to bucket numbers.
//!
//! A [`Reduction`] has no size. With the width of a hash and a number of buckets it becomes a
//! [`Reducer`], which maps hashes to buckets and knows how many buckets it can reach.
//!
//! # Invariants
//!
//! - A bucket is below the number of buckets, whatever the hash.
//! - [`Reducer::reachable_count`] is at least the number of buckets that hashes of the width reach.

use std::fmt;
use std::str::FromStr;

use splitpoint::linear::Geometry;

use crate::Error;

/// A method of turning hashes into bucket numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reduction {
    /// The low bits: `h & (m - 1)`.
    LowMask,
    /// The high bits of the hash's width: `h >> (w - b)`.
    HighShift,
    /// The bits above a given shift: `(h >> s) & (m - 1)`.
    Shift(u32),
    /// The bits above a shift that falls as the table grows: `(h >> (s - b)) & (m - 1)`.
    ///
    /// Lever's rule for 32 bits is [`Reduction::HighShift`]; the shifts he printed are those from
    /// 31.
    ShiftFrom(u32),
    /// The remainder: `h % m`.
    Modulus,
    /// The remainder by a prime: `h % m`.
    PrimeModulus,
    /// The high word of a product: `(h * m) >> w`, for any number of buckets.
    ///
    /// Source: Lemire, "Fast random integer generation in an interval", 2019.
    Range,
    /// The split mask of linear hashing, for any number of buckets; see
    /// [`Geometry`].
    Split,
    /// The low bits, where hashbrown begins to probe. In its groups of 16, [`hashbrown_tag`]
    /// distinguishes the keys.
    Hashbrown,
    /// `(h + (h >> b)) & (m - 1)`, in the hash's width.
    AddFold,
    /// `(h + (h >> b) + (h >> 2b)) & (m - 1)`, in the hash's width.
    AddFoldTwice,
    /// `(h ^ (h >> b) ^ (h >> 2b)) & (m - 1)`.
    XorFoldTwice,
    /// `(h ^ ((h ^ golden) >> b)) & (m - 1)`.
    GoldenFold(u64),
    /// `(h * multiplier) >> (32 - b)`, in 32 bits.
    Multiply32(u32),
    /// The buffer cache of Linux 2.2.16, of a device in the high word and a block in the low word:
    /// `(d << (b-6)) ^ (d << (b-9)) ^ (k << (b-6)) ^ (k >> 13) ^ (k << (b-12))`, in 32 bits.
    Buffer2216,
}

/// The names of reductions for users.
const KNOWN: &str = "low, high, shift:N, modulus, prime, range, split and hashbrown";

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::LowMask => "low",
            Self::HighShift => "high",
            Self::Shift(shift) => return write!(f, "shift:{shift}"),
            Self::ShiftFrom(shift) => return write!(f, "shift:{shift}-b"),
            Self::Modulus => "modulus",
            Self::PrimeModulus => "prime",
            Self::Range => "range",
            Self::Split => "split",
            Self::Hashbrown => "hashbrown",
            Self::AddFold => "add-fold",
            Self::AddFoldTwice => "add-fold-twice",
            Self::XorFoldTwice => "xor-fold-twice",
            Self::GoldenFold(golden) => return write!(f, "golden-fold:{golden:x}"),
            Self::Multiply32(multiplier) => return write!(f, "multiply:{multiplier:x}"),
            Self::Buffer2216 => "linux-2.2.16-buffer",
        };
        f.write_str(name)
    }
}

impl FromStr for Reduction {
    type Err = Error;

    /// Reads the name of a reduction that is not part of one hash function.
    fn from_str(name: &str) -> Result<Self, Error> {
        let shift = name.strip_prefix("shift:").and_then(|shift| shift.parse().ok());
        match (name, shift) {
            ("low", _) => Ok(Self::LowMask),
            ("high", _) => Ok(Self::HighShift),
            (_, Some(shift)) => Ok(Self::Shift(shift)),
            ("modulus", _) => Ok(Self::Modulus),
            ("prime", _) => Ok(Self::PrimeModulus),
            ("range", _) => Ok(Self::Range),
            ("split", _) => Ok(Self::Split),
            ("hashbrown", _) => Ok(Self::Hashbrown),
            _ => Err(Error::UnknownReduction { name: name.to_owned(), known: KNOWN }),
        }
    }
}

/// Most buckets of a table.
pub const BUCKET_COUNT_MAX: u64 = 1 << 32;

impl Reduction {
    /// Returns true if the number of buckets has to be a power of two.
    pub const fn needs_power_of_two(self) -> bool {
        !matches!(self, Self::Modulus | Self::PrimeModulus | Self::Range | Self::Split)
    }

    /// Prepares for hashes of `width_bits` bits and a table of `bucket_count` buckets.
    ///
    /// # Errors
    ///
    /// [`Error::BucketCount`] if the table cannot have that many buckets.
    ///
    /// # Panics
    ///
    /// If the width is not 1 to 64.
    pub fn prepare(self, width_bits: u32, bucket_count: u64) -> Result<Reducer, Error> {
        assert!((1..=64).contains(&width_bits), "a hash has 1 to 64 bits");
        let refuse =
            |needs| Err(Error::BucketCount { reduction: self.to_string(), bucket_count, needs });
        if !(1..=BUCKET_COUNT_MAX).contains(&bucket_count) {
            return refuse("1 to 2^32");
        }
        if self.needs_power_of_two() && !bucket_count.is_power_of_two() {
            return refuse("a power of two");
        }
        let bits = bucket_count.ilog2();
        match self {
            Self::PrimeModulus if !is_prime(bucket_count) => return refuse("a prime number"),
            Self::Split if bucket_count > splitpoint::linear::BUCKET_COUNT_MAX => {
                return refuse("as many as a store can have");
            }
            Self::ShiftFrom(shift) if bits > shift => return refuse("a smaller power of two"),
            Self::Buffer2216 if !(12..=31).contains(&bits) => return refuse("2^12 to 2^31"),
            _ => {}
        }
        Ok(Reducer { reduction: self, width_bits, bucket_count, bits })
    }
}

/// A reduction with the width of the hash and the size of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reducer {
    reduction: Reduction,
    width_bits: u32,
    bucket_count: u64,
    /// Whole bits of a bucket number: the logarithm of the bucket count.
    bits: u32,
}

impl Reducer {
    /// Returns the reduction.
    pub const fn reduction(self) -> Reduction {
        self.reduction
    }

    /// Returns the width of the hashes.
    pub const fn width_bits(self) -> u32 {
        self.width_bits
    }

    /// Returns the number of buckets.
    pub const fn bucket_count(self) -> u64 {
        self.bucket_count
    }

    /// Returns the bucket of `hash`, of which only the bits of its width count.
    #[inline]
    pub fn bucket_of(self, hash: u64) -> u64 {
        let width = u64::MAX >> (64 - self.width_bits);
        let (hash, bits, mask) = (hash & width, self.bits, self.bucket_count - 1);
        let bucket = match self.reduction {
            Reduction::LowMask | Reduction::Hashbrown => hash & mask,
            Reduction::HighShift => shifted(hash, self.width_bits.saturating_sub(bits)),
            Reduction::Shift(shift) => shifted(hash, shift) & mask,
            Reduction::ShiftFrom(from) => shifted(hash, from - bits) & mask,
            Reduction::Modulus | Reduction::PrimeModulus => hash % self.bucket_count,
            Reduction::Range => {
                ((u128::from(hash) * u128::from(self.bucket_count)) >> self.width_bits) as u64
            }
            Reduction::Split => Geometry::with_bucket_count(self.bucket_count).bucket_of(hash).0,
            Reduction::AddFold => hash.wrapping_add(shifted(hash, bits)) & mask,
            Reduction::AddFoldTwice => {
                hash.wrapping_add(shifted(hash, bits)).wrapping_add(shifted(hash, 2 * bits)) & mask
            }
            Reduction::XorFoldTwice => {
                (hash ^ shifted(hash, bits) ^ shifted(hash, 2 * bits)) & mask
            }
            Reduction::GoldenFold(golden) => (hash ^ shifted(hash ^ golden, bits)) & mask,
            Reduction::Multiply32(multiplier) => {
                shifted(u64::from((hash as u32).wrapping_mul(multiplier)), 32 - bits)
            }
            Reduction::Buffer2216 => u64::from(buffer_2_2_16(hash, bits)) & mask,
        };
        debug_assert!(bucket < self.bucket_count);
        bucket
    }

    /// Returns the number of buckets that hashes of this width can reach at most.
    ///
    /// # Cost
    ///
    /// A few steps; for the buffer cache of 2.2.16 the rank of a matrix of bits.
    pub fn reachable_count(self) -> u64 {
        let bits_reached = match self.reduction {
            Reduction::Modulus | Reduction::PrimeModulus | Reduction::Range => {
                return values(self.width_bits).min(self.bucket_count);
            }
            // One bit more than the level selects among the split buckets.
            Reduction::Split if self.width_bits > self.bits => return self.bucket_count,
            Reduction::Shift(shift) => self.width_bits.saturating_sub(shift),
            Reduction::ShiftFrom(from) => self.width_bits.saturating_sub(from - self.bits),
            Reduction::Multiply32(_) => self.width_bits.min(32),
            Reduction::Buffer2216 => self.rank(),
            _ => self.width_bits,
        };
        1 << bits_reached.min(self.bits)
    }

    /// Returns the fault of this reduction at this size, whatever the keys, or `None`.
    ///
    /// # Examples
    ///
    /// Lever's dentry and buffer variants with shift 17 on a table of 2^17:
    ///
    /// ```
    /// use splitpoint_lab::Reduction;
    ///
    /// let reducer = Reduction::Shift(17).prepare(32, 1 << 17)?;
    /// assert_eq!(reducer.reachable_count() * 4, 1 << 17);
    /// assert!(reducer.lint().is_some());
    /// # Ok::<(), splitpoint_lab::Error>(())
    /// ```
    pub fn lint(self) -> Option<Lint> {
        let reachable_count = self.reachable_count();
        let Self { reduction, width_bits, bucket_count, .. } = self;
        (reachable_count < bucket_count).then_some(Lint {
            reduction,
            width_bits,
            bucket_count,
            reachable_count,
        })
    }

    /// Returns the rank of a reduction that is linear in the bits of the hash.
    fn rank(self) -> u32 {
        let mut basis: Vec<u64> = Vec::new();
        for bit in 0..self.width_bits {
            let mut image = self.bucket_of(1 << bit);
            for &row in &basis {
                image = image.min(image ^ row);
            }
            if image != 0 {
                basis.push(image);
            }
        }
        basis.len() as u32
    }
}

/// Buckets that no hash reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lint {
    /// The reduction.
    pub reduction: Reduction,
    /// Width of the hash.
    pub width_bits: u32,
    /// Buckets of the table.
    pub bucket_count: u64,
    /// Buckets that can be reached.
    pub reachable_count: u64,
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = 100.0 * self.reachable_count as f64 / self.bucket_count as f64;
        write!(
            f,
            "`{}` of a hash of {} bits reaches {} of {} buckets ({share:.3} %)",
            self.reduction, self.width_bits, self.reachable_count, self.bucket_count
        )
    }
}

/// Returns hashbrown's tag of a hash: its top 7 bits.
///
/// The tag of a hash of 32 bits or less is always 0 and distinguishes nothing.
#[inline]
pub const fn hashbrown_tag(hash: u64) -> u8 {
    (hash >> 57) as u8
}

/// Returns the smallest prime that is `at_least` or more.
///
/// # Panics
///
/// If it is over [`BUCKET_COUNT_MAX`].
pub fn prime_at_least(at_least: u64) -> u64 {
    (at_least.max(2)..=BUCKET_COUNT_MAX).find(|&n| is_prime(n)).expect("a prime below 2^32")
}

/// Tries every odd number up to the root: 2^15 steps at most here.
fn is_prime(n: u64) -> bool {
    n == 2
        || n > 2
            && n % 2 == 1
            && (3_u64..).step_by(2).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

fn shifted(hash: u64, shift: u32) -> u64 {
    hash.checked_shr(shift).unwrap_or(0)
}

/// Returns the number of values of a word of `bits` bits, or the largest number.
fn values(bits: u32) -> u64 {
    1_u64.checked_shl(bits).unwrap_or(u64::MAX)
}

fn buffer_2_2_16(hash: u64, bits: u32) -> u32 {
    let (device, block) = ((hash >> 32) as u32, hash as u32);
    (device << (bits - 6))
        ^ (device << (bits - 9))
        ^ (block << (bits - 6))
        ^ (block >> 13)
        ^ (block << (bits - 12))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ALL: [Reduction; 15] = [
        Reduction::LowMask,
        Reduction::HighShift,
        Reduction::Shift(11),
        Reduction::ShiftFrom(31),
        Reduction::Modulus,
        Reduction::PrimeModulus,
        Reduction::Range,
        Reduction::Split,
        Reduction::Hashbrown,
        Reduction::AddFold,
        Reduction::AddFoldTwice,
        Reduction::XorFoldTwice,
        Reduction::GoldenFold(0x9e37_ffff_fffc_0001),
        Reduction::Multiply32(0x9e37_0001),
        Reduction::Buffer2216,
    ];

    #[test]
    fn buckets_are_in_the_table_for_every_width_and_size() {
        for reduction in ALL {
            for width_bits in 1..=64 {
                for bucket_count in (1..40).chain([4096, 4099, 1 << 20, (1 << 20) + 5]) {
                    let Ok(reducer) = reduction.prepare(width_bits, bucket_count) else { continue };
                    for step in 0..64_u64 {
                        let hash = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::MAX >> step);
                        assert!(reducer.bucket_of(hash) < bucket_count, "{reducer:?} {hash:x}");
                    }
                }
            }
        }
    }

    /// Every hash of up to 14 bits is tried: what is reached is what was promised.
    #[test]
    fn the_reachable_buckets_are_those_that_hashes_reach() {
        for reduction in ALL {
            for width_bits in 1..=14 {
                for bucket_count in [1, 2, 3, 5, 16, 17, 24, 64, 101, 4096] {
                    let Ok(reducer) = reduction.prepare(width_bits, bucket_count) else { continue };
                    let reached: BTreeSet<u64> =
                        (0..1 << width_bits).map(|hash| reducer.bucket_of(hash)).collect();
                    let (found, most) = (reached.len() as u64, reducer.reachable_count());
                    // A product's top bits are not all different; the others are exact.
                    let is_exact = !matches!(reduction, Reduction::Multiply32(_));
                    assert!(found <= most, "{reducer:?}: {found} of {most}");
                    assert!(found == most || !is_exact, "{reducer:?}: {found} of {most}");
                }
            }
        }
    }

    #[test]
    fn the_lint_finds_shifts_that_leave_too_few_bits() {
        let lint = Reduction::Shift(17).prepare(32, 1 << 17).unwrap().lint().unwrap();
        assert_eq!(lint.reachable_count, 1 << 15);
        assert!(lint.to_string().contains("32768 of 131072 buckets (25.000 %)"), "{lint}");
        assert_eq!(Reduction::Shift(17).prepare(32, 1 << 15).unwrap().lint(), None);
        assert_eq!(Reduction::Buffer2216.prepare(64, 1 << 14).unwrap().lint(), None);
        assert!(Reduction::LowMask.prepare(21, 1 << 24).unwrap().lint().is_some());
    }

    #[test]
    fn the_split_mask_is_that_of_the_store() {
        let geometry = Geometry::with_bucket_count((1 << 10) + 77);
        let reducer = Reduction::Split.prepare(64, geometry.bucket_count()).unwrap();
        for hash in (0..100_000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            assert_eq!(reducer.bucket_of(hash), geometry.bucket_of(hash).0);
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused_with_what_is_needed() {
        for (reduction, bucket_count, needs) in [
            (Reduction::LowMask, 3, "a power of two"),
            (Reduction::LowMask, 0, "1 to 2^32"),
            (Reduction::PrimeModulus, 9, "a prime number"),
            (Reduction::Buffer2216, 1 << 11, "2^12 to 2^31"),
            (Reduction::ShiftFrom(8), 1 << 9, "a smaller power of two"),
        ] {
            match reduction.prepare(32, bucket_count) {
                Err(Error::BucketCount { needs: found, .. }) => assert_eq!(found, needs),
                other => panic!("{reduction} of {bucket_count} gave {other:?}"),
            }
        }
    }

    #[test]
    fn names_are_read_back() {
        for name in ["low", "high", "shift:11", "modulus", "prime", "range", "split", "hashbrown"] {
            assert_eq!(name.parse::<Reduction>().unwrap().to_string(), name);
        }
        assert!("mask".parse::<Reduction>().is_err());
    }

    #[test]
    fn primes_are_prime() {
        assert_eq!([2, 8, 14, 4090, 1 << 20].map(prime_at_least), [2, 11, 17, 4091, 1_048_583]);
        assert!(!is_prime(1) && !is_prime(0) && !is_prime(65_535) && is_prime(65_537));
    }

    #[test]
    fn hashbrown_tags_of_narrow_hashes_tell_nothing() {
        assert_eq!(hashbrown_tag(u64::MAX), 127);
        assert_eq!(hashbrown_tag(u64::from(u32::MAX)), 0);
    }
}
