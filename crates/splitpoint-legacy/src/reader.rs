//! What all read-only formats have in common: units with pairs.
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
//! - Reading a unit fails only if a system call fails. Damage in it is a [`Fault`], beside the
//!   pairs that are still readable.
//! - A unit takes memory for its bytes only. Keys and values outside it are read one at a time.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use splitpoint::stats::Stats;
use splitpoint::{Error, Result};

use crate::Source;
use crate::doubt::Doubt;
use crate::identity::Identity;
use crate::stated::Stated;

/// Something in a file that breaks its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The broken part.
    pub what: &'static str,
    /// Its place, in bytes from the start of the file.
    pub offset: u64,
    /// What the format requires there.
    pub expected: u64,
    /// What the file has there.
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

/// A pair in a unit. The parts outside the unit are read on request.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) key: Piece,
    pub(crate) value: Piece,
    /// Further values of the same key, in formats that have them.
    pub(crate) further: Further,
}

impl Item {
    /// Returns a key with its only value.
    pub(crate) fn of(key: Piece, value: Piece) -> Self {
        Self { key, value, further: Further::default() }
    }
}

/// The values of a key after its first, in their order.
#[derive(Clone, Debug)]
pub(crate) enum Further {
    /// In these places.
    Row(Vec<Piece>),
    /// On a chain of leaves, from the first to the last, that hold nothing but the values of this
    /// key, its first value included.
    Leaves { first: u64, last: u64, page_bytes: u64 },
}

impl Default for Further {
    /// There are none.
    fn default() -> Self {
        Self::Row(Vec::new())
    }
}

impl Further {
    /// Returns whether there are certainly none.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Row(row) if row.is_empty())
    }
}

/// A walk over the further values of a key.
#[derive(Debug, Default)]
pub(crate) struct FurtherValues {
    row: std::vec::IntoIter<Piece>,
    next_leaf: Option<u64>,
    last_leaf: u64,
    page_bytes: u64,
    /// The fault at the end of the leaves.
    end: Option<Fault>,
    /// The leaves so far, so that a loop of them gives no value twice.
    leaves: HashSet<u64>,
    /// Values at the start of the first leaf that belong to the item itself.
    skip: usize,
}

impl FurtherValues {
    pub(crate) fn of(further: Further) -> Self {
        match further {
            Further::Row(pieces) => Self { row: pieces.into_iter(), ..Self::default() },
            Further::Leaves { first, last, page_bytes } => Self {
                next_leaf: Some(first),
                last_leaf: last,
                page_bytes,
                skip: 1,
                ..Self::default()
            },
        }
    }

    /// Returns the next value, or `None` after the last.
    ///
    /// # Errors
    ///
    /// A [`Fault`] if the value is unreadable. The next call returns the value behind it.
    pub(crate) fn next(&mut self, reader: &dyn Reader, budget: &Budget) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(value) = self.row.next() {
                return piece(reader, &value, false, budget).map(Some);
            }
            if let Some(fault) = self.end.take() {
                return Err(fault.into());
            }
            let Some(leaf) = self.next_leaf.take() else { return Ok(None) };
            let offset = leaf.saturating_mul(self.page_bytes);
            if !self.leaves.insert(leaf) {
                return Err(Fault::new("chain of leaves, a loop", offset, 1, 2).into());
            }
            let mut values = Vec::new();
            let next = reader.values_of_leaf(leaf, budget, &mut values)?;
            let is_last = leaf == self.last_leaf;
            if is_last == next.is_none() {
                self.next_leaf = next;
            } else {
                let expected = if is_last { 0 } else { self.last_leaf };
                let found = next.unwrap_or_default();
                self.end = Some(Fault::new("next leaf of a key's values", offset, expected, found));
            }
            // The first leaves may hold nothing but deleted values.
            let skipped = self.skip.min(values.len());
            self.skip -= skipped;
            self.row = values.split_off(skipped).into_iter();
        }
    }
}

/// The place of a key or a value.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// In the unit.
    Here(Vec<u8>),
    /// In one run of bytes of the file.
    At { offset: u64, bytes: u64 },
    /// On a separate chain of pages that begins with this one. `bytes` is its length, if the format
    /// states it.
    Pages { page: u64, bytes: Option<u64> },
    /// Unreadable.
    Fault(Fault),
}

/// The contents of a unit.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    pub(crate) items: Vec<Item>,
    pub(crate) faults: Vec<Fault>,
    /// Pages after the first.
    pub(crate) overflow_pages: u64,
    /// Bits of the hash that select this unit, if that number differs between units.
    pub(crate) depth: Option<u32>,
    /// Whether keys belong here; they do not in a gap of the trie.
    pub(crate) is_in_use: bool,
    /// Set if the file should have this unit but ends before it. [`Stated`] reports all of these at
    /// once.
    pub(crate) absence: Option<Fault>,
    /// Number of pairs by its own count, if it has one.
    pub(crate) stated_pairs: u64,
}

impl Unit {
    /// Returns a substitute for the unit of `bytes` at `offset`, in a file that ends before it.
    pub(crate) fn absent(offset: u64, bytes: u64, file_bytes: u64) -> Self {
        let end = offset.saturating_add(bytes);
        let absence = Some(Fault::new("end of the file", offset, end, file_bytes));
        Self { absence, ..Self::default() }
    }
}

/// Separates damage, which is a result, from a failed system call.
pub(crate) fn or_fault<T>(result: Result<T>) -> Result<Result<T, Fault>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Error::Corrupt { what, offset, expected, found }) => {
            Ok(Err(Fault { what, offset, expected, found }))
        }
        Err(other) => Err(other),
    }
}

/// The places where the original would look for a key, the most likely first.
///
/// There are two if the file does not reveal the sign of `char` on the machine that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Homes(pub(crate) [Option<u64>; 2]);

impl Homes {
    /// The hash function is unknown.
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

/// What is outside the units of a file: bytes to which they lead, and pages to which nothing does.
pub(crate) trait Loose {
    /// Reads a page behind the end that the header states as a separate unit, if it looks like one.
    fn page_behind(&self, _number: u64, _budget: &Budget) -> Result<Unit> {
        Ok(Unit::default())
    }

    /// Visits every bucket or page that looks like one, whether or not anything leads to it, for a
    /// salvage. It skips those whose pairs a scan returns.
    fn loose_units(
        &self,
        _budget: &Budget,
        _visit: &mut dyn FnMut(Unit) -> Result<()>,
    ) -> Result<()> {
        Ok(())
    }

    /// Reads a key or a value on separate pages. `is_key` selects one of the two if they share
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

    /// Reads the values on a page of [`Further::Leaves`], and returns the page that follows it.
    fn values_of_leaf(
        &self,
        leaf: u64,
        _budget: &Budget,
        _values: &mut Vec<Piece>,
    ) -> Result<Option<u64>> {
        Err(Fault::new("leaf of further values", leaf, 0, leaf).into())
    }
}

/// A read-only format.
pub(crate) trait Reader: Loose + fmt::Debug + Send + Sync {
    /// The identity of the file.
    fn identity(&self) -> &Identity;

    /// The file with the pairs.
    fn source(&self) -> &Source;

    /// Units are numbered from 0.
    fn unit_count(&self) -> u64;

    /// Faults outside all units.
    fn faults(&self) -> &[Fault];

    /// The numbers that the file states.
    fn stated(&self) -> Stated;

    /// Returns a doubt about the file as a whole that is no loss in itself.
    fn reservation(&self) -> Option<Doubt> {
        None
    }

    /// Returns the first unit from `index` on that is not in a hole of a sparse file. Units in a
    /// hole are empty.
    fn after_hole(&self, index: u64) -> u64 {
        index
    }

    /// Calls the visitor with the depth of each unit in a hole that takes keys; see
    /// [`Unit::is_in_use`].
    fn empty_buckets(&self, _units: Range<u64>, _visit: &mut dyn FnMut(Option<u32>)) {}

    /// Reads one unit, as far as `budget` allows.
    fn unit(&self, index: u64, budget: &Budget) -> Result<Unit>;

    /// Reads of unit `index` what a lookup of `key` needs.
    fn unit_of(&self, index: u64, _key: &[u8], budget: &Budget) -> Result<Unit> {
        self.unit(index, budget)
    }

    /// Whether a hash leads to a unit. If not, the units are parts of an order of the keys, and
    /// their sizes say nothing about a hash function.
    fn is_hashed(&self) -> bool {
        true
    }

    /// Whether the keys are in another order than that of their bytes, so that the place of a key
    /// among the others says nothing.
    fn has_own_order(&self, _budget: &Budget) -> Result<bool> {
        Ok(false)
    }

    /// Returns the places where the original would look for `key`.
    fn homes(&self, key: &[u8]) -> Homes;

    /// The parameters of the file.
    fn parameters(&self) -> Vec<Parameter>;

    /// The name of the hash function, if it is known.
    fn hash_name(&self) -> &str;

    /// The hash of `key`, arranged so that its lowest bits select the bucket first.
    fn hash_of(&self, key: &[u8]) -> Option<u64>;

    /// Buckets of the table, if it uses linear hashing.
    fn linear_bucket_count(&self) -> Option<u64> {
        None
    }

    /// Counts and occupancy by the pages that a lookup reads, if the format has them and the file
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
        Piece::Fault(fault) => Err((*fault).into()),
    }
}

/// Bytes that a walk may still read.
///
/// In a sound file neither pairs nor buckets overlap, so a walk reads each byte at most three
/// times: as bucket, as key and as value. A walk that reads more is in a malicious file.
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

    /// Takes `bytes`, or returns the fault.
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

    /// Returns whether a walk wanted more than its budget.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent.get()
    }

    /// The fault of a file that exhausts the budget.
    pub(crate) fn fault(&self) -> Fault {
        let found = self.file_bytes.saturating_mul(3);
        Fault::new("sum of the pairs", 0, self.file_bytes, found)
    }
}

/// Reads `bytes` bytes at `offset`, which must all be in the file.
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
