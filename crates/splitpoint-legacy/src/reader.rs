//! What every format that is only read has in common: units, each with the pairs in it.
//!
//! ```text
//! format   unit                                   the original looks for a key in
//! dbm      block                                  the block that the trie in .dir names
//! gdbm     bucket                                 the bucket that the directory names
//! krb5     bucket page and its overflow pages     the bucket of its hash
//! ```
//!
//! # Invariants
//!
//! - Reading a unit fails only where the system refuses: what is damaged in it is a [`Fault`], and
//!   the pairs that can still be read are there.
//! - A unit takes memory for its own bytes; keys and values outside it are read one at a time.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;

use splitpoint::stats::Stats;
use splitpoint::{Error, Result};

use crate::Source;
use crate::identity::Identity;
use crate::stated::Stated;

/// Something in a file that breaks its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// What is broken.
    pub what: &'static str,
    /// Where, in bytes from the start of the file.
    pub offset: u64,
    /// What the format asks for there.
    pub expected: u64,
    /// What is there.
    pub found: u64,
}

impl Fault {
    pub(crate) fn new(what: &'static str, offset: u64, expected: u64, found: u64) -> Self {
        Self { what, offset, expected, found }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Error::from(*self).fmt(f)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let Fault { what, offset, expected, found } = fault;
        Self::Corrupt { what, offset, expected, found }
    }
}

/// A pair that was found; what is not in its unit is read when it is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) key: Piece,
    pub(crate) value: Piece,
    /// Further values of the same key, where the format has them.
    pub(crate) further_values: u64,
}

/// Where a key or a value is.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// It was in the unit.
    Here(Vec<u8>),
    /// It is one run of bytes of the file.
    At { offset: u64, bytes: u64 },
    /// It is on a chain of pages of its own, beginning with this one; `bytes` of it, where the
    /// format says how many.
    Pages { page: u64, bytes: Option<u64> },
}

/// What a unit holds.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    pub(crate) items: Vec<Item>,
    pub(crate) faults: Vec<Fault>,
    /// Pages after the first.
    pub(crate) overflow_pages: u64,
    /// Bits of the hash that tell this unit from others, where that differs between units.
    pub(crate) depth: Option<u32>,
    /// Whether it takes keys: a hole in the trie does not.
    pub(crate) is_in_use: bool,
    /// Set if the file should have this unit and ends before it. [`Stated`] tells of all of these
    /// at once.
    pub(crate) absence: Option<Fault>,
    /// How many pairs it has by its own count, where it has one.
    pub(crate) stated_pairs: u64,
}

impl Unit {
    /// Returns the unit that should be at `offset`, `bytes` long, in a file that ends before.
    pub(crate) fn absent(offset: u64, bytes: u64, file_bytes: u64) -> Self {
        let end = offset.saturating_add(bytes);
        let absence = Some(Fault::new("end of the file", offset, end, file_bytes));
        Self { absence, ..Self::default() }
    }
}

/// Tells damage, which is a result, from a refusal of the system.
pub(crate) fn or_fault<T>(result: Result<T>) -> Result<Result<T, Fault>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Error::Corrupt { what, offset, expected, found }) => {
            Ok(Err(Fault { what, offset, expected, found }))
        }
        Err(other) => Err(other),
    }
}

/// Where the original would look for a key, the most likely place first.
///
/// There are two where the file does not say with which sign of `char` it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Homes(pub(crate) [Option<u64>; 2]);

impl Homes {
    /// The hash function is not known.
    pub(crate) const UNKNOWN: Self = Self([None, None]);

    pub(crate) fn of(first: u64, second: u64) -> Self {
        Self([Some(first), (second != first).then_some(second)])
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = u64> {
        self.0.into_iter().flatten()
    }

    pub(crate) fn first(self) -> Option<u64> {
        self.0[0]
    }
}

/// A parameter of a file, as its format names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// The value, for people.
    pub value: String,
}

impl Parameter {
    pub(crate) fn new(name: &'static str, value: impl fmt::Display) -> Self {
        Self { name, value: value.to_string() }
    }
}

/// A format that is only read.
pub(crate) trait Reader: fmt::Debug + Send + Sync {
    /// What the file is.
    fn identity(&self) -> &Identity;

    /// The file that has the pairs.
    fn source(&self) -> &Source;

    /// Units are numbered from 0.
    fn unit_count(&self) -> u64;

    /// What is wrong outside all units.
    fn faults(&self) -> &[Fault];

    /// What the file states of itself.
    fn stated(&self) -> Stated;

    /// Whether anything states how many units there are.
    fn states_extent(&self) -> bool {
        true
    }

    /// Returns the first unit from `index` on that is not in a hole of a sparse file; those in one
    /// are empty.
    fn after_hole(&self, index: u64) -> u64 {
        index
    }

    /// Gives the depth of each unit of a hole that takes keys: see [`Unit::is_in_use`].
    fn empty_buckets(&self, _units: Range<u64>, _visit: &mut dyn FnMut(Option<u32>)) {}

    /// Reads one unit, as far as `budget` allows.
    fn unit(&self, index: u64, budget: &Budget) -> Result<Unit>;

    /// Reads a page behind the end that the header knows, as a unit of its own, if it looks like one.
    fn page_behind(&self, _number: u64, _budget: &Budget) -> Result<Unit> {
        Ok(Unit::default())
    }

    /// Gives every bucket or page that looks like one, whether or not anything leads to it: for
    /// salvage. Not those where a scan sees all.
    fn loose_units(
        &self,
        _budget: &Budget,
        _visit: &mut dyn FnMut(Unit) -> Result<()>,
    ) -> Result<()> {
        Ok(())
    }

    /// Reads a key or a value on pages of its own. `is_key` tells the two apart where they share
    /// their pages.
    fn pages(
        &self,
        first: u64,
        _bytes: Option<u64>,
        _is_key: bool,
        _budget: &Budget,
    ) -> Result<Vec<u8>> {
        Err(Fault::new("page of a big pair", first, 0, first).into())
    }

    /// Says where the original would look for `key`.
    fn homes(&self, key: &[u8]) -> Homes;

    /// The parameters of the file.
    fn parameters(&self) -> Vec<Parameter>;

    /// The name of the hash function, or nothing if it is not known.
    fn hash_name(&self) -> &str;

    /// The hash of `key`, whose lowest bits are those that buckets are told apart by first.
    fn hash_of(&self, key: &[u8]) -> Option<u64>;

    /// Buckets of the table where they are those of linear hashing.
    fn linear_bucket_count(&self) -> Option<u64> {
        None
    }

    /// Counts and occupancy by the pages that a lookup reads, where the format can tell and the file
    /// is sound.
    fn stats(&self) -> Option<Stats> {
        None
    }
}

/// Reads the key of `item`.
pub(crate) fn key_of(reader: &dyn Reader, item: &Item, budget: &Budget) -> Result<Vec<u8>> {
    piece(reader, &item.key, true, budget)
}

/// Reads the value of `item`.
pub(crate) fn value_of(reader: &dyn Reader, item: &Item, budget: &Budget) -> Result<Vec<u8>> {
    piece(reader, &item.value, false, budget)
}

fn piece(reader: &dyn Reader, piece: &Piece, is_key: bool, budget: &Budget) -> Result<Vec<u8>> {
    match piece {
        // It was counted with its unit.
        Piece::Here(bytes) => Ok(bytes.clone()),
        Piece::At { offset, bytes } => {
            budget.take(*bytes)?;
            run_of(reader.source(), *offset, *bytes)
        }
        Piece::Pages { page, bytes } => reader.pages(*page, *bytes, is_key, budget),
    }
}

/// Bytes that a walk may still look at.
///
/// The pairs of a sound file lie beside each other, and so do its buckets. A walk that has looked
/// at more than three times the bytes of the file, as bucket, as key and as value, is in a file that
/// was made to keep it busy.
#[derive(Debug)]
pub(crate) struct Budget {
    left_bytes: Cell<u64>,
    is_spent: Cell<bool>,
    file_bytes: u64,
}

impl Budget {
    pub(crate) fn new(source: &Source) -> Self {
        let file_bytes = source.file_bytes();
        let left_bytes = Cell::new(file_bytes.saturating_mul(3).saturating_add(1 << 20));
        Self { left_bytes, is_spent: Cell::new(false), file_bytes }
    }

    /// Takes `bytes`, or says what is wrong.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), Fault> {
        match self.left_bytes.get().checked_sub(bytes) {
            Some(left_bytes) if !self.is_spent() => {
                self.left_bytes.set(left_bytes);
                Ok(())
            }
            _ => {
                self.is_spent.set(true);
                Err(self.fault())
            }
        }
    }

    /// Returns whether more was asked for than there was.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent.get()
    }

    /// What is wrong with a file that takes all.
    pub(crate) fn fault(&self) -> Fault {
        let found = self.file_bytes.saturating_mul(3);
        Fault::new("sum of the pairs", 0, self.file_bytes, found)
    }
}

/// Reads `bytes` bytes at `offset`, all of which must be in the file.
pub(crate) fn run_of(source: &Source, offset: u64, bytes: u64) -> Result<Vec<u8>> {
    let end = offset.checked_add(bytes).filter(|end| *end <= source.file_bytes());
    let Some(_) = end else {
        let end = offset.saturating_add(bytes);
        return Err(Fault::new("end of a pair", offset, source.file_bytes(), end).into());
    };
    let mut run = vec![0; bytes as usize];
    source.read_at(offset, &mut run)?;
    Ok(run)
}
