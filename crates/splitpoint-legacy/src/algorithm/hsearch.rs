//! hsearch of System V: a table of fixed size in memory, with all options of its source.
//!
//! ```text
//! key --> digest: sum of the bytes + length
//!            |--> MULT: high bits of digest * FACTOR     step: the bits below, made odd
//!            \--> DIV:  digest modulo the size           step: 1
//! OPEN: the slots home, home + step, home + 2 step ...   BRENT: moves others to shorten this
//! CHAINED: a list at home, newest first, or sorted up or down
//! ```
//!
//! `hcreate(n)` makes a table of the first power of two above n. One slot of an open table stays empty,
//! which ends a search: a table of 2^k slots takes 2^k - 1 entries. Whichever
//! option a program was compiled with, keys with the same digest share their home and every step.
//!
//! # What differs from the original
//!
//! - It has no delete and no walk. Here a deleted slot is marked, and searches pass it.
//! - Several tables can exist.
//! - CHAINED puts new entries in front of their chain, which the paper calls the default. The source
//!   appends them, and needs another macro, START, to put them in front. START is not an option here.
//! - SORTUP and SORTDOWN end a search at the first entry that is not beyond the key. The source takes
//!   that entry for the key: it returns another entry for a miss, and inserts no key before it.
//! - BRENT computes steps from the digests of entries only. The source also hashes the key of the
//!   empty slot, a null pointer.
//! - Of two moves that cost the same BRENT makes the one of the first entry passed. The source may
//!   make a later one.
//! - Macros that exclude each other are refused. In the source OPEN undefines CHAINED, MULT undefines
//!   DIV, START the sorts, and CHAINED makes BRENT do nothing.
//! - A key is any bytes, and its digest takes all of them as unsigned. In the source a key ends at a
//!   NUL, and `char` has the sign of the machine.
//! - A table for 0 entries has two slots. `hcreate(0)` fails.
//!
//! # Source
//!
//! Seltzer and Yigit 1991, section "hsearch"; Knuth, The Art of Computer Programming 3, 6.4, for
//! the multiplier, double hashing and Brent's variation.

mod chained;
mod open;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use chained::Chains;
use open::Slots;

use super::{Algorithm, Counts, Footprint, Refusal, StoreMode, Stored, Visit};

/// The multiplier of MULT, octal 035761254233 in the source.
pub const FACTOR: u32 = 0xefc5_589b;

/// Most slots of a table.
pub const SLOT_COUNT_MAX: u64 = 1 << 28;

/// How a digest becomes a slot: MULT or DIV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hashing {
    /// By multiplication, the default. Collisions of an open table: double hashing.
    Mult,
    /// By division. Collisions of an open table: linear probing.
    Div,
}

/// The order of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// New entries at the front: the default of the paper, START in the source.
    Start,
    /// Ascending: SORTUP.
    Up,
    /// Descending: SORTDOWN.
    Down,
}

/// How collisions are resolved: OPEN or CHAINED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collisions {
    /// In other slots, the default.
    Open,
    /// In other slots, with Brent's rearrangement: BRENT.
    Brent,
    /// In lists: CHAINED.
    Chained(Order),
}

/// A comparison of the user: `hcompar`.
pub type Compare = fn(&[u8], &[u8]) -> Ordering;

/// The compile-time options.
#[derive(Clone, Copy)]
pub struct Options {
    /// MULT or DIV.
    pub hashing: Hashing,
    /// OPEN, BRENT or CHAINED.
    pub collisions: Collisions,
    /// The comparison of the user, USCR: `hcompar`. It replaces the comparison of strings, not the
    /// hash function, whatever the paper says.
    pub compare: Option<Compare>,
    /// The digest of a key: [`digest`] in the original.
    pub digest: fn(&[u8]) -> u32,
}

impl Default for Options {
    /// Returns what System V was compiled with: MULT and OPEN.
    fn default() -> Self {
        let (hashing, collisions) = (Hashing::Mult, Collisions::Open);
        Self { hashing, collisions, compare: None, digest }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hashing, collisions, compare, .. } = self;
        f.debug_struct("Options")
            .field("hashing", hashing)
            .field("collisions", collisions)
            .field("has_compare", &compare.is_some())
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Returns the options that a list of the source's macros stands for, such as
    /// `["DIV", "CHAINED", "SORTUP"]`.
    ///
    /// USCR stands for `compare`, which must then be there.
    ///
    /// # Errors
    ///
    /// [`splitpoint::Error::Invalid`] if a macro is unknown, if two exclude each other, or if one
    /// needs another: BRENT rearranges slots, which CHAINED has not; the sorts order chains.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_legacy::algorithm::hsearch::{Collisions, Options, Order};
    ///
    /// let options = Options::of_macros(&["CHAINED", "SORTUP"], None)?;
    /// assert_eq!(options.collisions, Collisions::Chained(Order::Up));
    /// assert!(Options::of_macros(&["CHAINED", "BRENT"], None).is_err());
    /// # Ok::<(), splitpoint::Error>(())
    /// ```
    pub fn of_macros(macros: &[&str], compare: Option<Compare>) -> splitpoint::Result<Self> {
        const KNOWN: [&str; 8] =
            ["MULT", "DIV", "OPEN", "CHAINED", "BRENT", "SORTUP", "SORTDOWN", "USCR"];
        const EXCLUDED: [(&str, &str); 6] = [
            ("MULT", "DIV"),
            ("OPEN", "CHAINED"),
            ("BRENT", "CHAINED"),
            ("SORTUP", "SORTDOWN"),
            ("SORTUP", "OPEN"),
            ("SORTDOWN", "OPEN"),
        ];
        let invalid =
            |reason: String| splitpoint::Error::Invalid { what: "hsearch option", reason };
        let has = |name: &str| macros.contains(&name);
        if let Some(unknown) = macros.iter().find(|name| !KNOWN.contains(name)) {
            return Err(invalid(format!("`{unknown}` is none of {}", KNOWN.join(", "))));
        }
        if let Some((one, other)) = EXCLUDED.into_iter().find(|(one, other)| has(one) && has(other))
        {
            return Err(invalid(format!("{one} and {other} exclude each other")));
        }
        if let Some(sort) =
            ["SORTUP", "SORTDOWN"].into_iter().find(|sort| has(sort) && !has("CHAINED"))
        {
            return Err(invalid(format!("{sort} orders chains: it needs CHAINED")));
        }
        if has("USCR") && compare.is_none() {
            return Err(invalid("USCR needs a comparison of the user".to_owned()));
        }
        let order = match () {
            () if has("SORTUP") => Order::Up,
            () if has("SORTDOWN") => Order::Down,
            () => Order::Start,
        };
        let collisions = match () {
            () if has("CHAINED") => Collisions::Chained(order),
            () if has("BRENT") => Collisions::Brent,
            () => Collisions::Open,
        };
        let hashing = if has("DIV") { Hashing::Div } else { Hashing::Mult };
        let compare = compare.filter(|_| has("USCR"));
        Ok(Self { hashing, collisions, compare, digest })
    }

    /// Compares two keys, in the order of chains.
    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        self.compare.map_or_else(|| one.cmp(other), |compare| compare(one, other))
    }
}

/// Returns System V's digest of a key: the sum of its bytes plus its length.
///
/// Words with the same letters share it. It is `crunch` in the source.
pub fn digest(key: &[u8]) -> u32 {
    key.iter().fold(key.len() as u32, |sum, &byte| sum.wrapping_add(u32::from(byte)))
}

/// Returns the first slot of a digest in a table of `2^bits` slots, and the step to the next.
///
/// # Panics
///
/// If `bits` is not 1 to 31.
pub fn probe_of(hashing: Hashing, digest: u32, bits: u32) -> (u32, u32) {
    assert!((1..32).contains(&bits), "a table has 2^1 to 2^31 slots");
    match hashing {
        Hashing::Mult => {
            let product = digest.wrapping_mul(FACTOR);
            (product >> (32 - bits), ((product << bits) >> (32 - bits)) | 1)
        }
        Hashing::Div => (digest & ((1 << bits) - 1), 1),
    }
}

/// Returns the bits of the number of slots that `hcreate(nelem)` makes: the first power of two
/// above `nelem`.
pub fn bits_for(nelem: u64) -> u32 {
    nelem.clamp(1, SLOT_COUNT_MAX - 1).ilog2() + 1
}

/// A table of hsearch.
#[derive(Debug)]
pub struct Hsearch {
    options: Options,
    bits: u32,
    entries: Entries,
    table: Table,
    counts: Counts,
}

#[derive(Debug)]
enum Table {
    Open(Slots),
    Chained(Chains),
}

/// One entry of a table.
#[derive(Debug)]
struct Entry {
    digest: u32,
    key: Box<[u8]>,
    value: Box<[u8]>,
}

/// The entries, which slots and chains name by their numbers.
#[derive(Debug, Default)]
struct Entries {
    all: Vec<Entry>,
    free: Vec<u32>,
}

impl Entries {
    fn add(&mut self, digest: u32, key: &[u8], value: &[u8]) -> u32 {
        let entry = Entry { digest, key: key.into(), value: value.into() };
        if let Some(free) = self.free.pop() {
            self.all[free as usize] = entry;
            return free;
        }
        self.all.push(entry);
        (self.all.len() - 1) as u32
    }

    fn remove(&mut self, number: u32) {
        self.all[number as usize] = Entry { digest: 0, key: Box::default(), value: Box::default() };
        self.free.push(number);
    }

    fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }
}

/// A key to look for.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    options: &'a Options,
    digest: u32,
    key: &'a [u8],
    home: u32,
    step: u32,
}

impl Wanted<'_> {
    /// Returns how the key of `entry` compares to this one.
    fn compare(&self, entry: &Entry) -> Ordering {
        self.options.compare(&entry.key, self.key)
    }

    /// Returns whether an entry with this digest can have this key.
    fn can_be(&self, digest: u32) -> bool {
        digest == self.digest || self.options.compare.is_some()
    }

    /// Returns whether `entry` has this key. Equal keys have equal digests, except to a comparison
    /// of the user.
    fn is(&self, entry: &Entry) -> bool {
        match self.options.compare {
            None => entry.digest == self.digest && *entry.key == *self.key,
            Some(compare) => compare(&entry.key, self.key) == Ordering::Equal,
        }
    }
}

impl Hsearch {
    /// Returns an empty table for `nelem` entries.
    pub fn new(options: Options, nelem: u64) -> Self {
        let bits = bits_for(nelem);
        let table = match options.collisions {
            Collisions::Open | Collisions::Brent => Table::Open(Slots::new(bits)),
            Collisions::Chained(order) => Table::Chained(Chains::new(bits, order)),
        };
        Self { options, bits, entries: Entries::default(), table, counts: Counts::default() }
    }

    /// Returns the number of slots, or of chains.
    pub fn slot_count(&self) -> u64 {
        1 << self.bits
    }

    fn wanted<'a>(options: &'a Options, bits: u32, key: &'a [u8]) -> Wanted<'a> {
        let digest = (options.digest)(key);
        let (home, step) = probe_of(options.hashing, digest, bits);
        Wanted { options, digest, key, home, step }
    }

    /// Returns the number of the entry with `key`.
    fn find(&mut self, key: &[u8]) -> Option<u32> {
        let wanted = Self::wanted(&self.options, self.bits, key);
        match &self.table {
            Table::Open(slots) => slots.find(&wanted, &self.entries, &mut self.counts),
            Table::Chained(chains) => chains.find(&wanted, &self.entries, &mut self.counts),
        }
    }
}

impl Algorithm for Hsearch {
    fn store(&mut self, key: &[u8], value: &[u8], mode: StoreMode) -> Result<Stored, Refusal> {
        let wanted = Self::wanted(&self.options, self.bits, key);
        let Self { entries, counts, .. } = self;
        let found = match &mut self.table {
            Table::Open(slots) => {
                let is_brent = self.options.collisions == Collisions::Brent;
                slots.store(&wanted, value, is_brent, entries, counts)?
            }
            Table::Chained(chains) => chains.store(&wanted, value, entries, counts),
        };
        match (found, mode) {
            (None, _) => Ok(Stored::New),
            (Some(_), StoreMode::Insert) => Ok(Stored::Kept),
            (Some(number), StoreMode::Replace) => {
                entries.all[number as usize].value = value.into();
                Ok(Stored::Replaced)
            }
        }
    }

    fn fetch(&mut self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Refusal> {
        let found = self.find(key);
        Ok(found.map(|number| (&*self.entries.all[number as usize].value).into()))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, Refusal> {
        let wanted = Self::wanted(&self.options, self.bits, key);
        let found = match &mut self.table {
            Table::Open(slots) => slots.remove(&wanted, &self.entries, &mut self.counts),
            Table::Chained(chains) => chains.remove(&wanted, &self.entries, &mut self.counts),
        };
        if let Some(number) = found {
            self.entries.remove(number);
        }
        Ok(found.is_some())
    }

    fn walk(&mut self, visit: &mut Visit<'_>) -> Result<(), Refusal> {
        let numbers = match &self.table {
            Table::Open(slots) => slots.numbers(),
            Table::Chained(chains) => chains.numbers(),
        };
        for number in numbers {
            self.counts.probes += 1;
            let entry = &self.entries.all[number as usize];
            if visit(&entry.key, &entry.value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn footprint(&self) -> Footprint {
        // An ENTRY is two pointers; a chain is one.
        let bytes_each = if matches!(self.table, Table::Open(_)) { 16 } else { 8 };
        Footprint {
            place_count: self.slot_count(),
            fill: self.len() as f64 / self.slot_count() as f64,
            index_bytes: self.slot_count() * bytes_each,
            depth: self.bits,
            ..Footprint::default()
        }
    }

    fn show(&self) -> String {
        let head = format!(
            "{} entries in a table of {}: {}\n",
            self.len(),
            self.slot_count(),
            match self.options.collisions {
                Collisions::Open => "open addressing",
                Collisions::Brent => "open addressing, Brent's rearrangement",
                Collisions::Chained(_) => "chained",
            }
        );
        match &self.table {
            Table::Open(slots) => head + &slots.show(&self.entries),
            Table::Chained(chains) => head + &chains.show(&self.entries),
        }
    }

    fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
