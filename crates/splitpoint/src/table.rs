//! What every access method is: one interface over files, memory and what comes later.

use std::any::Any;
use std::borrow::Borrow;
use std::fmt;

use crate::batch::{AsPair, Change};
use crate::error::{ErrorKind, Result};
use crate::options::Durability;
use crate::stats::Stats;
use crate::value::{Entry, Value};

/// Whether [`Table::put_bytes`] may replace.
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
    /// What [`TableExt::apply`] promises.
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

/// What a check of a table found, whatever its access method.
///
/// [`Db::check`](crate::Db::check) and the access methods of other crates have reports that say more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableCheck {
    /// Keys of the table.
    pub record_count: u64,
    /// Damages in all.
    pub damage_count: u64,
    /// The first of them, in words; at most [`TableCheck::DAMAGES_MAX`].
    pub damages: Vec<String>,
}

impl TableCheck {
    /// Damages that a report lists; it counts the rest.
    pub const DAMAGES_MAX: usize = 1000;

    /// Returns the report of a table with `record_count` keys, without damage so far.
    pub fn new(record_count: u64) -> Self {
        Self { record_count, ..Self::default() }
    }

    /// Returns whether the check found no damage.
    pub fn is_clean(&self) -> bool {
        self.damage_count == 0
    }

    /// Adds a damage.
    pub fn note(&mut self, damage: impl fmt::Display) {
        self.damage_count += 1;
        if self.damages.len() < Self::DAMAGES_MAX {
            self.damages.push(damage.to_string());
        }
    }
}

/// A table of keys and values: what every access method implements.
///
/// [`Db`](crate::Db) is one, and [`open`](crate::open()) returns any of them as a trait object.
/// **Programs call the methods of [`TableExt`]**, which have the names and parameters of `Db`'s and
/// take keys and values as any `AsRef<[u8]>`. This trait can be used as an object, so its own methods
/// take slices; those that are not needed by most access methods have a default.
///
/// Three methods of `Db` are of another shape here: `len` and `is_empty` may fail, since some access
/// methods have to read the whole file for it, and `check` returns a [`TableCheck`].
///
/// A program that needs what only one access method has gets at it as at any [`Any`]:
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
    /// Returns what this access method can do.
    fn capabilities(&self) -> Capabilities;

    /// Returns the value of `key`, or `None`: [`TableExt::get`].
    ///
    /// # Errors
    ///
    /// Those of the access method; a missing key is not one.
    fn get_bytes(&self, key: &[u8]) -> Result<Option<Value<'_>>>;

    /// Stores `value` under `key` and returns whether it did: `false` only for [`PutMode::New`] and a
    /// key that exists. [`TableExt::put`] and [`TableExt::put_new`] call it.
    ///
    /// `durability` is that of this change; `None` means that of the table. An access method that does
    /// not have the level takes a stronger one, or its strongest:
    /// [`Capabilities::durability`] lists what it has.
    ///
    /// # Errors
    ///
    /// Those of the access method; after one the old value is still there.
    fn put_bytes(
        &self,
        key: &[u8],
        value: &[u8],
        mode: PutMode,
        durability: Option<Durability>,
    ) -> Result<bool>;

    /// Removes `key` and returns whether it was there: [`TableExt::delete`].
    ///
    /// # Errors
    ///
    /// As [`put_bytes`](Self::put_bytes).
    fn delete_bytes(&self, key: &[u8], durability: Option<Durability>) -> Result<bool>;

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

    /// Returns whether there is no key.
    ///
    /// # Errors
    ///
    /// As [`len`](Self::len).
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the values of `keys`, in their order: [`TableExt::get_many`].
    ///
    /// # Errors
    ///
    /// As [`get_bytes`](Self::get_bytes).
    fn get_many_bytes(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value<'_>>>> {
        keys.iter().map(|key| self.get_bytes(key)).collect()
    }

    /// Stores every pair, in order: [`TableExt::put_many`]. With [`Durability::Sync`] they share one
    /// wait at the end.
    ///
    /// # Errors
    ///
    /// As [`put_bytes`](Self::put_bytes); the pairs before the one that failed are stored.
    fn put_many_bytes(
        &self,
        pairs: &[(&[u8], &[u8])],
        durability: Option<Durability>,
    ) -> Result<()> {
        one_by_one(self, durability, pairs, |(key, value), durability| {
            self.put_bytes(key, value, PutMode::Replace, durability).map(drop)
        })
    }

    /// Applies `changes` in order: [`TableExt::apply`]. [`Capabilities::batch`] says what happens
    /// when one fails.
    ///
    /// # Errors
    ///
    /// As [`put_bytes`](Self::put_bytes).
    fn apply_bytes(&self, changes: &[Change<'_>], durability: Option<Durability>) -> Result<()> {
        one_by_one(self, durability, changes, |change, durability| match *change {
            Change::Put { key, value } => {
                self.put_bytes(key, value, PutMode::Replace, durability).map(drop)
            }
            Change::Delete { key } => self.delete_bytes(key, durability).map(drop),
        })
    }

    /// Verifies the table without changing it. Damage is in the report, not in the error.
    ///
    /// An access method that has nothing better reads every record, looks each key up, and counts.
    /// Then nobody may change the table meanwhile.
    ///
    /// # Errors
    ///
    /// Only if the check itself cannot go on.
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
                Ok(Some(key)) => report.note(format_args!("a lookup does not find {key:?}")),
                Err(error) if error.kind() == ErrorKind::Corrupt => report.note(error),
                Err(error) => return Err(error),
            }
            // A scan that cannot go on may report the same damage for ever.
            if report.damages.len() == TableCheck::DAMAGES_MAX {
                return Ok(report);
            }
        }
        let found = report.record_count;
        match self.len() {
            Ok(count) if count == found => {}
            Ok(count) => report.note(format_args!("{found} keys, but the count is {count}")),
            Err(error) if error.kind() == ErrorKind::Corrupt => report.note(error),
            Err(error) => return Err(error),
        }
        Ok(report)
    }

    /// Closes the table and makes its changes as durable as [`sync`](Self::sync) does; returns
    /// whether it is closed. `false` means that other handles still have it open: see
    /// [`Db::close`](crate::Db::close).
    ///
    /// Dropping the table closes it too, without a way to report an error.
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

/// Makes changes one by one, to the first that fails, with one wait for all of them.
fn one_by_one<T>(
    table: &(impl Table + ?Sized),
    durability: Option<Durability>,
    changes: &[T],
    make: impl Fn(&T, Option<Durability>) -> Result<()>,
) -> Result<()> {
    if durability != Some(Durability::Sync) {
        return changes.iter().try_for_each(|change| make(change, durability));
    }
    let made = changes.iter().try_for_each(|change| make(change, Some(Durability::Buffered)));
    // Those before the one that failed are durable too.
    let synced = table.sync();
    made.and(synced)
}

/// The calls of a program on any [`Table`], with the names and parameters that they have in
/// [`Db`](crate::Db), where each is documented in full.
///
/// Every table has it; bring it into scope with `use splitpoint::TableExt`.
pub trait TableExt: Table {
    /// Returns the value of `key`, or `None`.
    ///
    /// # Errors
    ///
    /// Those of the access method; a missing key is not one.
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        self.get_bytes(key.as_ref())
    }

    /// Replaces the content of `buf` by the value of `key` and returns whether there is one.
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

    /// Returns whether `key` is there.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get_bytes(key.as_ref())?.is_some())
    }

    /// Returns the values of `keys`, in their order.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    fn get_many(
        &self,
        keys: impl IntoIterator<Item: AsRef<[u8]>>,
    ) -> Result<Vec<Option<Value<'_>>>> {
        let keys: Vec<_> = keys.into_iter().collect();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        self.get_many_bytes(&keys)
    }

    /// Stores `value` under `key`, replacing any earlier value.
    ///
    /// # Errors
    ///
    /// Those of the access method; after one the old value is still there.
    fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_bytes(key.as_ref(), value.as_ref(), PutMode::Replace, None).map(drop)
    }

    /// Stores `value` as [`put`](Self::put), with `durability` for this change.
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

    /// Stores `value` under `key` if the key is not there, and returns whether it was stored.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    fn put_new(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.put_bytes(key.as_ref(), value.as_ref(), PutMode::New, None)
    }

    /// Stores `value` as [`put_new`](Self::put_new), with `durability` for this change.
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

    /// Stores every pair, in order.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put); the pairs before the one that failed are stored.
    fn put_many(&self, pairs: impl IntoIterator<Item: AsPair>) -> Result<()> {
        let pairs: Vec<_> = pairs.into_iter().collect();
        let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(AsPair::as_pair).collect();
        self.put_many_bytes(&pairs, None)
    }

    /// Stores every pair as [`put_many`](Self::put_many), with `durability` for all of them.
    ///
    /// # Errors
    ///
    /// As [`put_many`](Self::put_many).
    fn put_many_with(
        &self,
        pairs: impl IntoIterator<Item: AsPair>,
        durability: Durability,
    ) -> Result<()> {
        let pairs: Vec<_> = pairs.into_iter().collect();
        let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(AsPair::as_pair).collect();
        self.put_many_bytes(&pairs, Some(durability))
    }

    /// Removes `key` and returns whether it was there.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.delete_bytes(key.as_ref(), None)
    }

    /// Removes `key` as [`delete`](Self::delete), with `durability` for this change.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<bool> {
        self.delete_bytes(key.as_ref(), Some(durability))
    }

    /// Applies a [`Batch`](crate::Batch) or [`Change`]s, in order; [`Capabilities::batch`] says what
    /// happens when one fails.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    fn apply<'a, C>(&self, changes: C) -> Result<()>
    where
        C: IntoIterator<Item: Borrow<Change<'a>>>,
    {
        let changes: Vec<Change<'a>> = changes.into_iter().map(|item| *item.borrow()).collect();
        self.apply_bytes(&changes, None)
    }

    /// Applies changes as [`apply`](Self::apply), with `durability` for all of them.
    ///
    /// # Errors
    ///
    /// As [`apply`](Self::apply).
    fn apply_with<'a, C>(&self, changes: C, durability: Durability) -> Result<()>
    where
        C: IntoIterator<Item: Borrow<Change<'a>>>,
    {
        let changes: Vec<Change<'a>> = changes.into_iter().map(|item| *item.borrow()).collect();
        self.apply_bytes(&changes, Some(durability))
    }
}

impl<T: Table + ?Sized> TableExt for T {}
