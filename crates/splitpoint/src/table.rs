//! What every access method is: one interface over files, memory and what comes later.

use std::fmt;

use crate::batch::Change;
use crate::error::Result;
use crate::options::Durability;
use crate::stats::Stats;
use crate::value::{Entry, Value};

/// Whether [`Table::put`] may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PutMode {
    /// Store the value, whatever was there: `DBM_REPLACE`.
    Replace,
    /// Refuse a key that exists: `DBM_INSERT`.
    New,
}

/// How many changes of a batch are made when one of them fails, or the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchAtomicity {
    /// All or none.
    Atomic,
    /// Those before the one that failed.
    None,
}

/// What a scan promises while the table is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanGuarantee {
    /// Every key present from its start to its end is returned exactly once.
    ExactlyOnce,
    /// Every key present throughout is returned, perhaps more than once.
    AtLeastOnce,
}

/// What an access method can do and what it does not promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Largest key in bytes.
    pub key_bytes_max: u64,
    /// Largest value in bytes.
    pub value_bytes_max: u64,
    /// Whether changes are refused.
    pub is_read_only: bool,
    /// What [`Table::apply`] promises.
    pub batch: BatchAtomicity,
    /// What [`Table::scan`] promises.
    pub scan: ScanGuarantee,
    /// The levels of durability on offer; empty for a table in memory.
    pub durability: Vec<Durability>,
    /// Whether a change that was acknowledged may be lost when a machine fails over to another.
    pub may_lose_acknowledged: bool,
}

impl Capabilities {
    /// Returns those of an access method that promises the least: it is only read, its batches are
    /// not atomic, a scan may return a key again, and nothing is durable. The fields can be set.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint::{Capabilities, ScanGuarantee};
    ///
    /// let mut capabilities = Capabilities::of_limits(1008, 1008);
    /// assert!(capabilities.is_read_only);
    /// capabilities.scan = ScanGuarantee::ExactlyOnce;
    /// ```
    pub fn of_limits(key_bytes_max: u64, value_bytes_max: u64) -> Self {
        Self {
            key_bytes_max,
            value_bytes_max,
            is_read_only: true,
            batch: BatchAtomicity::None,
            scan: ScanGuarantee::AtLeastOnce,
            durability: Vec::new(),
            may_lose_acknowledged: false,
        }
    }
}

/// A scan: keys with their values, in the order of the access method.
pub type Entries<'table> = Box<dyn Iterator<Item = Result<Entry<'table>>> + 'table>;

/// A table of keys and values: the interface of every access method.
///
/// It can be used as a trait object, so that a program takes any table:
///
/// ```
/// use splitpoint::{PutMode, Table};
///
/// # fn main() -> splitpoint::Result<()> {
/// let table: Box<dyn Table> = splitpoint::open("mem:")?;
/// assert!(table.put(b"key", b"value", PutMode::New)?);
/// assert!(!table.put(b"key", b"other", PutMode::New)?);
/// assert_eq!(table.get(b"key")?.as_deref(), Some(&b"value"[..]));
/// # Ok(())
/// # }
/// ```
pub trait Table: fmt::Debug + Send + Sync {
    /// Returns what this access method can do.
    fn capabilities(&self) -> Capabilities;

    /// Returns the value of `key`, or `None`.
    ///
    /// # Errors
    ///
    /// Those of the access method; a missing key is not one.
    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>>;

    /// Returns the values of `keys`, in their order.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value<'_>>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// Stores `value` under `key` and returns whether it was stored: `false` only for
    /// [`PutMode::New`] and a key that exists.
    ///
    /// # Errors
    ///
    /// Those of the access method; after one the old value is still there.
    fn put(&self, key: &[u8], value: &[u8], mode: PutMode) -> Result<bool>;

    /// Removes `key` and returns whether it was there.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    fn delete(&self, key: &[u8]) -> Result<bool>;

    /// Makes `changes` in order; [`Capabilities::batch`] says what happens on an error.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    fn apply(&self, changes: &[Change<'_>]) -> Result<()> {
        for change in changes {
            match change {
                Change::Put { key, value } => drop(self.put(key, value, PutMode::Replace)?),
                Change::Delete { key } => drop(self.delete(key)?),
            }
        }
        Ok(())
    }

    /// Returns every key with its value; [`Capabilities::scan`] says what concurrent changes do.
    ///
    /// # Errors
    ///
    /// Those of the access method.
    fn scan(&self) -> Result<Entries<'_>>;

    /// Returns the number of keys.
    ///
    /// # Errors
    ///
    /// Those of the access method.
    fn len(&self) -> Result<u64>;

    /// Returns whether there is no key.
    ///
    /// # Errors
    ///
    /// As [`len`](Self::len).
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes every change so far as durable as the access method can.
    ///
    /// # Errors
    ///
    /// The operating system's; then nothing since the last success is promised.
    fn sync(&self) -> Result<()>;

    /// Returns counts, sizes and the occupancy of the table.
    ///
    /// # Errors
    ///
    /// Those of the access method.
    fn stats(&self) -> Result<Stats>;
}
