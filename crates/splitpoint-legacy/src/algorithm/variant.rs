//! The modules with their options, by name.

use std::cmp::Ordering;

use splitpoint::hash::HashFunction;
use splitpoint::{Error, Result};

use super::hsearch::{Collisions, Hashing, Hsearch, Order};
use super::page::PAGE_BYTES;
use super::{Algorithm, dbm, dynahash, gdbm, hash, hsearch, sdbm};
use crate::db185;

/// What a probe of a variant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A page, or in `gdbm` a bucket or a record: one access of a disk without a cache.
    Pages,
    /// A slot of a table in memory, or a key in a chain.
    Probes,
}

impl Unit {
    /// Returns the name of several.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pages => "pages",
            Self::Probes => "probes",
        }
    }
}

/// One module with its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Variant {
    /// dbm of the seventh edition.
    Dbm,
    /// ndbm of 4.3BSD.
    Ndbm,
    /// Yigit's sdbm, as Perl has it.
    Sdbm,
    /// GNU gdbm.
    Gdbm,
    /// hsearch of System V.
    Hsearch {
        /// MULT or DIV.
        hashing: Hashing,
        /// OPEN, BRENT or CHAINED.
        collisions: Collisions,
        /// Whether keys are compared by a function of the user, USCR: here by length first.
        has_compare: bool,
        /// Whether the digest is a good hash, rapidhash, and not the original's.
        has_good_digest: bool,
    },
    /// Pitt's dynahash.
    Dynahash,
    /// The package itself, db 1.85.
    Hash,
}

/// Parameters of a new table. A variant takes those that it has; each has a default of its own.
///
/// | parameter | variants that take it | default |
/// |---|---|---|
/// | `page_bytes` | dbm, ndbm, sdbm, gdbm, hash | 512, 1024, 1024, 4096, 256 |
/// | `fill_factor` | dynahash, hash | 1, 8 |
/// | `expected_records` | hsearch, dynahash, hash | 1: a table that must grow, if it can |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Bytes of a page.
    pub page_bytes: Option<usize>,
    /// Mean keys of a bucket above which one bucket is split.
    pub fill_factor: Option<u32>,
    /// Expected number of pairs: `nelem`.
    pub expected_records: Option<u64>,
}

/// Most buckets of a new table of `hash`, so that the pages of each can be listed.
const HASH_BUCKETS_MAX: u64 = 1 << 28;

pub(super) const EVERY_COLLISIONS: [Collisions; 5] = [
    Collisions::Open,
    Collisions::Brent,
    Collisions::Chained(Order::Start),
    Collisions::Chained(Order::Up),
    Collisions::Chained(Order::Down),
];

impl Variant {
    /// Returns every variant: the modules, and hsearch with every combination of its options and
    /// with either digest.
    pub fn all() -> Vec<Self> {
        let mut all =
            vec![Self::Dbm, Self::Ndbm, Self::Sdbm, Self::Gdbm, Self::Dynahash, Self::Hash];
        for has_good_digest in [false, true] {
            for has_compare in [false, true] {
                for hashing in [Hashing::Mult, Hashing::Div] {
                    all.extend(EVERY_COLLISIONS.map(|collisions| Self::Hsearch {
                        hashing,
                        collisions,
                        has_compare,
                        has_good_digest,
                    }));
                }
            }
        }
        all
    }

    /// Returns the name: the module, and its options after hyphens, such as
    /// `hsearch-div-sortup-uscr`. The defaults of hsearch, MULT and OPEN, are not
    /// named, nor is CHAINED beside a sort.
    pub fn name(self) -> String {
        let Self::Hsearch { hashing, collisions, has_compare, has_good_digest } = self else {
            return self.module().to_owned();
        };
        let mut name = self.module().to_owned();
        if hashing == Hashing::Div {
            name.push_str("-div");
        }
        name.push_str(match collisions {
            Collisions::Open => "",
            Collisions::Brent => "-brent",
            Collisions::Chained(Order::Start) => "-chained",
            Collisions::Chained(Order::Up) => "-sortup",
            Collisions::Chained(Order::Down) => "-sortdown",
        });
        if has_compare {
            name.push_str("-uscr");
        }
        if has_good_digest {
            name.push_str("-rapidhash");
        }
        name
    }

    /// Returns the name of the module.
    pub fn module(self) -> &'static str {
        match self {
            Self::Dbm => "dbm",
            Self::Ndbm => "ndbm",
            Self::Sdbm => "sdbm",
            Self::Gdbm => "gdbm",
            Self::Hsearch { .. } => "hsearch",
            Self::Dynahash => "dynahash",
            Self::Hash => "hash",
        }
    }

    /// Returns the variant of this name. `hsearch-mult` and `hsearch-open` are names of `hsearch` with
    /// its defaults, apart from the module.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_legacy::algorithm::Variant;
    ///
    /// assert_eq!(Variant::by_name("ndbm"), Some(Variant::Ndbm));
    /// assert!(Variant::by_name("hsearch-div-sortup").is_some());
    /// assert_eq!(Variant::by_name("hsearch-mult"), Variant::by_name("hsearch"));
    /// assert!(Variant::by_name("hsearch-brent-chained").is_none());
    /// ```
    pub fn by_name(name: &str) -> Option<Self> {
        let name = if matches!(name, "hsearch-mult" | "hsearch-open") { "hsearch" } else { name };
        Self::all().into_iter().find(|variant| variant.name() == name)
    }

    /// Returns what a probe is.
    pub fn unit(self) -> Unit {
        match self {
            Self::Dbm | Self::Ndbm | Self::Sdbm | Self::Gdbm | Self::Hash => Unit::Pages,
            Self::Hsearch { .. } | Self::Dynahash => Unit::Probes,
        }
    }

    /// Fails where [`create`](Self::create) would, without making a table.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a parameter is out of the range of the variant.
    pub fn check(self, parameters: &Parameters) -> Result<()> {
        match self {
            Self::Dbm => page_bytes(parameters, dbm::Options::dbm().page_bytes).map(drop),
            Self::Ndbm => page_bytes(parameters, dbm::Options::ndbm().page_bytes).map(drop),
            Self::Sdbm => page_bytes(parameters, sdbm::PAGE_BYTES_DEFAULT).map(drop),
            Self::Gdbm => gdbm_options(parameters).map(drop),
            Self::Hsearch { .. } => expected_records(parameters, hsearch::SLOT_COUNT_MAX - 1),
            Self::Dynahash => {
                fill_factor(parameters, 1)?;
                expected_records(parameters, dynahash::FIRST_BUCKETS_MAX)
            }
            Self::Hash => {
                // A table in memory has no page before the first pair.
                hash_options(parameters)?.in_memory()?;
                let fill_factor = fill_factor(parameters, hash::FILL_FACTOR_DEFAULT)?;
                expected_records(parameters, HASH_BUCKETS_MAX * u64::from(fill_factor))
            }
        }
    }

    /// Returns the bytes of memory that an empty table takes for its slots or buckets. Others have
    /// none before the first pair, but for a page or two, which are not counted.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_legacy::algorithm::{Parameters, Variant};
    ///
    /// let parameters = Parameters { expected_records: Some(1 << 20), ..Parameters::default() };
    /// let hsearch = Variant::by_name("hsearch").expect("a variant");
    /// // Two numbers of 32 bits for each of 2^21 slots.
    /// assert_eq!(hsearch.empty_bytes(&parameters), 16 << 20);
    /// assert_eq!(Variant::Ndbm.empty_bytes(&parameters), 0);
    /// ```
    pub fn empty_bytes(self, parameters: &Parameters) -> u64 {
        const WORD_BYTES: u64 = 4;
        let expected = parameters.expected_records.unwrap_or(1);
        match self {
            Self::Hsearch { collisions, .. } => {
                let words = if matches!(collisions, Collisions::Chained(_)) { 1 } else { 2 };
                (words * WORD_BYTES) << hsearch::bits_for(expected)
            }
            Self::Dynahash => {
                WORD_BYTES * expected.clamp(1, dynahash::FIRST_BUCKETS_MAX).next_power_of_two()
            }
            // What lists its pages has a row for each.
            Self::Hash => {
                let fill = parameters.fill_factor.unwrap_or(hash::FILL_FACTOR_DEFAULT).max(1);
                let buckets = (expected / u64::from(fill)).clamp(1, HASH_BUCKETS_MAX);
                buckets.next_power_of_two() * size_of::<db185::PageRow>() as u64
            }
            Self::Dbm | Self::Ndbm | Self::Sdbm | Self::Gdbm => 0,
        }
    }

    /// Returns an empty table.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a parameter is out of the range of the variant.
    pub fn create(self, parameters: &Parameters) -> Result<Box<dyn Algorithm>> {
        self.check(parameters)?;
        let expected_records = parameters.expected_records.unwrap_or(1);
        match self {
            Self::Dbm => Ok(Box::new(dbm(dbm::Options::dbm(), parameters)?)),
            Self::Ndbm => Ok(Box::new(dbm(dbm::Options::ndbm(), parameters)?)),
            Self::Sdbm => {
                let mut options = sdbm::Options::default();
                options.page_bytes = page_bytes(parameters, options.page_bytes)?;
                Ok(Box::new(sdbm::Sdbm::new(options)))
            }
            Self::Gdbm => Ok(Box::new(gdbm::Gdbm::new(gdbm_options(parameters)?))),
            Self::Hsearch { hashing, collisions, has_compare, has_good_digest } => {
                let digest = if has_good_digest { good_digest } else { hsearch::digest };
                let compare = has_compare.then_some(by_length as hsearch::Compare);
                let options = hsearch::Options { hashing, collisions, compare, digest };
                Ok(Box::new(Hsearch::new(options, expected_records)))
            }
            Self::Dynahash => {
                let fill_factor = fill_factor(parameters, 1)?;
                let hash = dynahash::hash;
                let options = dynahash::Options { fill_factor, expected_records, hash };
                Ok(Box::new(dynahash::Dynahash::new(options)))
            }
            Self::Hash => Ok(Box::new(hash::Hash::new(hash_options(parameters)?)?)),
        }
    }
}

fn gdbm_options(parameters: &Parameters) -> Result<gdbm::Options> {
    let block_bytes = parameters.page_bytes.unwrap_or(gdbm::BLOCK_BYTES_DEFAULT);
    // gdbm takes a smaller size for a wish, and uses its own smallest.
    let block_bytes = block_bytes.max(gdbm::BLOCK_BYTES_MIN);
    if block_bytes > gdbm::BLOCK_BYTES_MAX {
        let most = gdbm::BLOCK_BYTES_MAX;
        let reason = format!("{block_bytes} bytes are more than {most}");
        return Err(Error::Invalid { what: "page size", reason });
    }
    Ok(gdbm::Options { block_bytes, ..gdbm::Options::default() })
}

fn hash_options(parameters: &Parameters) -> Result<db185::Options> {
    let page_bytes = parameters.page_bytes.unwrap_or(hash::PAGE_BYTES_DEFAULT as usize);
    Ok(db185::Options::new()
        .page_bytes(u32::try_from(page_bytes).unwrap_or(u32::MAX))
        .fill_factor(fill_factor(parameters, hash::FILL_FACTOR_DEFAULT)?)
        .expected_records(parameters.expected_records.unwrap_or(1)))
}

/// Refuses more expected records than `most`.
fn expected_records(parameters: &Parameters, most: u64) -> Result<()> {
    match parameters.expected_records {
        Some(expected) if expected > most => {
            let reason = format!("{expected} entries are more than {most}");
            Err(Error::Invalid { what: "nelem", reason })
        }
        _ => Ok(()),
    }
}

fn dbm(mut options: dbm::Options, parameters: &Parameters) -> Result<dbm::Dbm> {
    options.page_bytes = page_bytes(parameters, options.page_bytes)?;
    Ok(dbm::Dbm::new(options))
}

fn page_bytes(parameters: &Parameters, default: usize) -> Result<usize> {
    let bytes = parameters.page_bytes.unwrap_or(default);
    if PAGE_BYTES.contains(&bytes) {
        return Ok(bytes);
    }
    let (least, most) = (PAGE_BYTES.start, PAGE_BYTES.end - 1);
    let reason = format!("{bytes} bytes are not {least} to {most}, which offsets of 16 bits reach");
    Err(Error::Invalid { what: "page size", reason })
}

fn fill_factor(parameters: &Parameters, default: u32) -> Result<u32> {
    let fill_factor = parameters.fill_factor.unwrap_or(default);
    if fill_factor > 0 {
        return Ok(fill_factor);
    }
    let reason = "0 is not a number of keys per bucket".to_owned();
    Err(Error::Invalid { what: "fill factor", reason })
}

/// The digest that mends hsearch: the low half of rapidhash.
fn good_digest(key: &[u8]) -> u32 {
    thread_local! {
        static FUNCTION: HashFunction = HashFunction::rapidhash_v3();
    }
    FUNCTION.with(|function| function.hash(key, 0)) as u32
}

/// A comparison of the user that is cheaper than that of strings: by length first.
fn by_length(one: &[u8], other: &[u8]) -> Ordering {
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}
