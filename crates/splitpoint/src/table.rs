//! The interface of all access methods: stores in files, tables in memory, and those of other
//! crates.

use std::any::Any;
use std::borrow::Borrow;
use std::fmt;

use crate::batch::{AsPair, Change, copied};
use crate::error::{ErrorKind, Result};
use crate::memory;
use crate::options::Durability;
use crate::stats::Stats;
use crate::value::{Entry, Value};

/// Whether [`Table::put_bytes`] may replace a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PutMode {
    /// Store the value, and replace the old one if the key exists: `DBM_REPLACE`.
    Replace,
    /// Store the value only if the key is missing: `DBM_INSERT`.
    New,
}

/// Which changes of a batch take effect if one of them fails or the process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchAtomicity {
    /// All or none.
    Atomic,
    /// The changes before the one that failed.
    None,
}

/// What a scan guarantees while other threads change the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanGuarantee {
    /// A scan returns every key that is present throughout the scan exactly once.
    ExactlyOnce,
    /// A scan returns every key that is present throughout the scan, perhaps more than once.
    AtLeastOnce,
}

/// What an access method supports and guarantees.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Largest key in bytes.
    pub key_bytes_max: u64,
    /// Largest value in bytes.
    pub value_bytes_max: u64,
    /// Whether the table refuses changes.
    pub is_read_only: bool,
    /// What [`TableExt::apply`] guarantees.
    pub batch: BatchAtomicity,
    /// What [`Table::scan`] guarantees.
    pub scan: ScanGuarantee,
    /// The levels of durability that the access method offers; none for a table in memory.
    pub durability: Vec<Durability>,
    /// Whether a failover to another machine may lose acknowledged changes.
    pub may_lose_acknowledged: bool,
}

impl Capabilities {
    /// Returns the weakest capabilities, as a starting point.
    ///
    /// They describe a read-only table whose batches are not atomic, whose scans may return a key
    /// twice, and in which nothing is durable. Set the fields in which the access method does
    /// better.
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

/// Iterator over keys with their values, in the order of the access method.
pub type Entries<'table> = Box<dyn Iterator<Item = Result<Entry<'table>>> + Send + 'table>;

/// What a check found, for every access method.
///
/// [`Db::check`](crate::Db::check) returns a more detailed report, and so do some access methods of
/// other crates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableCheck {
    /// Keys of the table.
    pub record_count: u64,
    /// Number of damages.
    pub damage_count: u64,
    /// The first damages as text, at most [`TableCheck::DAMAGES_MAX`].
    pub damages: Vec<String>,
}

impl TableCheck {
    /// Largest number of damages that a report lists; further ones are only counted.
    pub const DAMAGES_MAX: usize = 1000;

    /// Creates the report of a table with `record_count` keys and no damage.
    pub fn new(record_count: u64) -> Self {
        Self { record_count, ..Self::default() }
    }

    /// Returns whether the check found no damage.
    pub fn is_clean(&self) -> bool {
        self.damage_count == 0
    }

    /// Adds one damage.
    pub fn note(&mut self, damage: impl fmt::Display) {
        self.damage_count += 1;
        if self.damages.len() < Self::DAMAGES_MAX {
            self.damages.push(damage.to_string());
        }
    }
}

/// A table of keys and values; every access method implements this trait.
///
/// [`Db`](crate::Db) implements it, and [`open`](crate::open()) returns any access method as a
/// trait object. **Programs call the methods of [`TableExt`]**, which have the same names and
/// parameters as those of `Db`, and take keys and values as any `AsRef<[u8]>`. The methods of this
/// trait take slices, so that it can be used as a trait object. Methods that few access methods
/// need to override have a default.
///
/// Three methods differ from those of `Db`: `len` and `is_empty` can fail, because some access
/// methods must read the whole file to count, and `check` returns a [`TableCheck`].
///
/// A table is [`Any`], so a program can downcast it to reach the methods of one access method:
///
/// ```
/// use std::any::Any;
///
/// use splitpoint::Db;
///
/// # fn main() -> splitpoint::Result<()> {
/// let table = splitpoint::open("mem:")?;
/// let any: &dyn Any = &*table;
/// assert!(any.downcast_ref::<Db>().is_some());
/// # Ok(())
/// # }
/// ```
///
/// # Examples
///
/// ```
/// use splitpoint::{Table, TableExt};
///
/// fn fill(table: &dyn Table) -> splitpoint::Result<()> {
///     table.put("France", "Paris")?;
///     assert!(!table.put_new("France", "Lyon")?);
///     table.put_many([("Peru", "Lima"), ("Chad", "N'Djamena")])
/// }
///
/// # fn main() -> splitpoint::Result<()> {
/// let table: Box<dyn Table> = splitpoint::open("mem:")?;
/// fill(&*table)?;
/// assert_eq!(table.get("France")?.expect("it was stored"), "Paris");
/// assert_eq!(table.len()?, 3);
/// table.close()?;
/// # Ok(())
/// # }
/// ```
pub trait Table: Any + fmt::Debug + Send + Sync {
    /// Returns what this access method supports and guarantees.
    fn capabilities(&self) -> Capabilities;

    /// Returns the value of `key`, or `None`; [`TableExt::get`] calls it.
    ///
    /// # Errors
    ///
    /// Any error of the access method. A missing key is not an error.
    fn get_bytes(&self, key: &[u8]) -> Result<Option<Value<'_>>>;

    /// Stores `value` under `key`, and returns whether it stored the value.
    ///
    /// It returns `false` only for [`PutMode::New`] and a key that exists. [`TableExt::put`] and
    /// [`TableExt::put_new`] call it.
    ///
    /// `durability` is the level of this change; `None` stands for the level of the table. An
    /// access method that does not offer the level uses the next stronger one, or its strongest.
    /// [`Capabilities::durability`] lists the levels it offers.
    ///
    /// # Errors
    ///
    /// Any error of the access method. After an error the old value is still stored.
    fn put_bytes(
        &self,
        key: &[u8],
        value: &[u8],
        mode: PutMode,
        durability: Option<Durability>,
    ) -> Result<bool>;

    /// Deletes `key`, and returns whether it existed; [`TableExt::delete`] calls it.
    ///
    /// # Errors
    ///
    /// As [`put_bytes`](Self::put_bytes).
    fn delete_bytes(&self, key: &[u8], durability: Option<Durability>) -> Result<bool>;

    /// Returns an iterator over every key with its value.
    ///
    /// [`Capabilities::scan`] says what it guarantees while other threads change the table.
    ///
    /// # Errors
    ///
    /// Any error of the access method.
    fn scan(&self) -> Result<Entries<'_>>;

    /// Returns the number of keys.
    ///
    /// # Errors
    ///
    /// Any error of the access method.
    fn len(&self) -> Result<u64>;

    /// Makes every change before this call as durable as the access method can.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] with the operating system's error. Changes since the last successful sync
    /// may then be lost.
    fn sync(&self) -> Result<()>;

    /// Returns the counts, sizes and chain lengths of the table.
    ///
    /// # Errors
    ///
    /// Any error of the access method.
    fn stats(&self) -> Result<Stats>;

    /// Returns whether the table has no keys.
    ///
    /// # Errors
    ///
    /// As [`len`](Self::len).
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the values of `keys`, in the same order; [`TableExt::get_many`] calls it.
    ///
    /// # Errors
    ///
    /// As [`get_bytes`](Self::get_bytes).
    fn get_many_bytes(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value<'_>>>> {
        keys.iter().map(|key| self.get_bytes(key)).collect()
    }

    /// Stores many records in order; [`TableExt::put_many`] calls it.
    ///
    /// With [`Durability::Sync`] the call waits for the device once, at the end.
    ///
    /// # Errors
    ///
    /// As [`put_bytes`](Self::put_bytes). The records before the one that failed are stored.
    fn put_many_bytes(
        &self,
        pairs: &[(&[u8], &[u8])],
        durability: Option<Durability>,
    ) -> Result<()> {
        let puts = pairs.iter().map(|&(key, value)| Change::Put { key, value });
        one_by_one(self, puts, durability)
    }

    /// Applies `changes` in order; [`TableExt::apply`] calls it.
    ///
    /// [`Capabilities::batch`] says what happens if one fails.
    ///
    /// # Errors
    ///
    /// As [`put_bytes`](Self::put_bytes).
    fn apply_bytes(&self, changes: &[Change<'_>], durability: Option<Durability>) -> Result<()> {
        one_by_one(self, changes.iter().copied(), durability)
    }

    /// Verifies the table without changing it.
    ///
    /// Damage is part of the report, not an error. The default reads every record, looks up its key
    /// and counts the keys, so no other thread may change the table during the check. Access
    /// methods that can verify more override it.
    ///
    /// # Errors
    ///
    /// Only if the check cannot continue.
    fn check(&self) -> Result<TableCheck> {
        let mut report = TableCheck::default();
        for entry in self.scan()? {
            let found = entry.and_then(|entry| {
                report.record_count += 1;
                let is_found = self.get_bytes(&entry.key)?.is_some_and(|it| it == entry.value);
                Ok((!is_found).then_some(entry.key))
            });
            match found {
                Ok(None) => {}
                Ok(Some(key)) => report.note(format_args!("a lookup of {key:?} misses the record")),
                Err(error) if error.kind() == ErrorKind::Corrupt => report.note(error),
                Err(error) => return Err(error),
            }
            // A scan that cannot advance could report the same damage forever.
            if report.damages.len() == TableCheck::DAMAGES_MAX {
                return Ok(report);
            }
        }
        let found = report.record_count;
        match self.len() {
            Ok(count) if count == found => {}
            Ok(count) => {
                report.note(format_args!("the scan found {found} keys, the table counts {count}"));
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => report.note(error),
            Err(error) => return Err(error),
        }
        Ok(report)
    }

    /// Closes the table, makes its changes as durable as [`sync`](Self::sync) does, and returns
    /// whether it is closed.
    ///
    /// `false` means that other handles still have it open: see [`Db::close`](crate::Db::close).
    /// Dropping the table closes it too, but cannot report an error.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    fn close(self: Box<Self>) -> Result<bool> {
        if !self.capabilities().is_read_only {
            self.sync()?;
        }
        Ok(true)
    }
}

/// Applies changes one by one up to the first that fails, with one sync at the end.
fn one_by_one<'a>(
    table: &(impl Table + ?Sized),
    mut changes: impl Iterator<Item = Change<'a>>,
    durability: Option<Durability>,
) -> Result<()> {
    let mut make = |durability| {
        changes.try_for_each(|change| match change {
            Change::Put { key, value } => {
                table.put_bytes(key, value, PutMode::Replace, durability).map(drop)
            }
            Change::Delete { key } => table.delete_bytes(key, durability).map(drop),
        })
    };
    if durability != Some(Durability::Sync) {
        return make(durability);
    }
    let made = make(Some(Durability::Buffered));
    // The changes before the failed one become durable, too.
    let synced = table.sync();
    made.and(synced)
}

/// The methods of [`Db`](crate::Db) for any [`Table`], with the same names and parameters.
///
/// [`Db`](crate::Db) documents each in full; this trait documents what differs between access
/// methods. Every table implements it: bring it into scope with `use splitpoint::TableExt`.
///
/// # Examples
///
/// The same function works on a store, a table in memory and an old file:
///
/// ```
/// use splitpoint::{Batch, Durability, Table, TableExt};
///
/// fn transfer(table: &dyn Table) -> splitpoint::Result<()> {
///     table.put_with("alice", "100", Durability::Buffered)?;
///     table.apply(&Batch::new().put("alice", "70").put("bob", "30"))?;
///     assert!(table.put_new("carol", "0")?);
///     assert!(table.delete("carol")?);
///     assert!(!table.contains("carol")?);
///     let balances = table.get_many(["alice", "bob"])?;
///     assert!(balances.iter().all(Option::is_some));
///     Ok(())
/// }
///
/// # fn main() -> splitpoint::Result<()> {
/// transfer(&splitpoint::Db::in_memory()?)
/// # }
/// ```
pub trait TableExt: Table {
    /// Returns the value of `key`, or `None`.
    ///
    /// # Errors
    ///
    /// Any error of the access method. A missing key is not an error.
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        self.get_bytes(key.as_ref())
    }

    /// Replaces the contents of `buf` with the value of `key`, and returns whether the key exists.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn get_into(&self, key: impl AsRef<[u8]>, buf: &mut Vec<u8>) -> Result<bool> {
        let Some(value) = self.get_bytes(key.as_ref())? else { return Ok(false) };
        buf.clear();
        buf.extend_from_slice(&value);
        Ok(true)
    }

    /// Returns whether `key` exists.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get_bytes(key.as_ref())?.is_some())
    }

    /// Returns the values of `keys`, in the same order.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn get_many(
        &self,
        keys: impl IntoIterator<Item: AsRef<[u8]>>,
    ) -> Result<Vec<Option<Value<'_>>>> {
        let keys = memory::collected(keys)?;
        let keys: Vec<&[u8]> = memory::collected(keys.iter().map(AsRef::as_ref))?;
        self.get_many_bytes(&keys)
    }

    /// Stores `value` under `key`, replacing any earlier value.
    ///
    /// # Errors
    ///
    /// Any error of the access method. After an error the old value is still stored.
    fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_bytes(key.as_ref(), value.as_ref(), PutMode::Replace, None).map(drop)
    }

    /// Stores `value` like [`put`](Self::put), with `durability` for this change.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        let durability = Some(durability);
        self.put_bytes(key.as_ref(), value.as_ref(), PutMode::Replace, durability).map(drop)
    }

    /// Stores `value` under `key` if the key is missing, and returns whether it stored the value.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    fn put_new(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.put_bytes(key.as_ref(), value.as_ref(), PutMode::New, None)
    }

    /// Stores `value` like [`put_new`](Self::put_new), with `durability` for this change.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    fn put_new_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<bool> {
        self.put_bytes(key.as_ref(), value.as_ref(), PutMode::New, Some(durability))
    }

    /// Stores many records in order.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put). The records before the one that failed are stored.
    fn put_many(&self, pairs: impl IntoIterator<Item: AsPair>) -> Result<()> {
        put_pairs(self, pairs, None)
    }

    /// Stores many records like [`put_many`](Self::put_many), with `durability` for all of them.
    ///
    /// # Errors
    ///
    /// As [`put_many`](Self::put_many).
    fn put_many_with(
        &self,
        pairs: impl IntoIterator<Item: AsPair>,
        durability: Durability,
    ) -> Result<()> {
        put_pairs(self, pairs, Some(durability))
    }

    /// Deletes `key`, and returns whether it existed.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.delete_bytes(key.as_ref(), None)
    }

    /// Deletes `key` like [`delete`](Self::delete), with `durability` for this change.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<bool> {
        self.delete_bytes(key.as_ref(), Some(durability))
    }

    /// Applies the changes of a [`Batch`](crate::Batch), or [`Change`]s, in order.
    ///
    /// [`Capabilities::batch`] says what happens if one fails.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    fn apply<'a, C>(&self, changes: C) -> Result<()>
    where
        C: IntoIterator<Item: Borrow<Change<'a>>>,
    {
        self.apply_bytes(&copied(changes)?, None)
    }

    /// Applies changes like [`apply`](Self::apply), with `durability` for all of them.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply).
    fn apply_with<'a, C>(&self, changes: C, durability: Durability) -> Result<()>
    where
        C: IntoIterator<Item: Borrow<Change<'a>>>,
    {
        self.apply_bytes(&copied(changes)?, Some(durability))
    }
}

impl<T: Table + ?Sized> TableExt for T {}

/// Passes records in any form to [`Table::put_many_bytes`].
fn put_pairs(
    table: &(impl Table + ?Sized),
    pairs: impl IntoIterator<Item: AsPair>,
    durability: Option<Durability>,
) -> Result<()> {
    let pairs: Vec<_> = pairs.into_iter().collect();
    let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(AsPair::as_pair).collect();
    table.put_many_bytes(&pairs, durability)
}
