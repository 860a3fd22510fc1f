//! redb, a copy-on-write B-tree.

use crate::{Config, Engine, Outcome, Shared};
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase as _, ReadableTable as _};
use redb::{TableDefinition, TableHandle as _};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// Changes in one transaction.
const BATCH: usize = 10_000;

/// A table is open only as long as its transaction is borrowed, so changes wait here.
/// The store as an engine of the race.
pub struct Redb {
    db: Database,
    waiting: Vec<Change>,
    /// What reads go to, until something is changed.
    view: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
}

enum Change {
    Put(Box<[u8]>, Box<[u8]>),
    Delete(Box<[u8]>),
}

impl Redb {
    fn add(&mut self, change: Change) -> Outcome<()> {
        self.waiting.push(change);
        if self.waiting.len() < BATCH { Ok(()) } else { self.apply(Durability::None) }
    }

    fn apply(&mut self, durability: Durability) -> Outcome<()> {
        if self.waiting.is_empty() && matches!(durability, Durability::None) {
            return Ok(());
        }
        self.view = None;
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for change in self.waiting.drain(..) {
                match change {
                    Change::Put(key, value) => drop(table.insert(&*key, &*value)?),
                    Change::Delete(key) => {
                        table.remove(&*key)?.ok_or("a key to delete is not found")?;
                    }
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn view(&mut self) -> Outcome<&ReadOnlyTable<&'static [u8], &'static [u8]>> {
        self.apply(Durability::None)?;
        if self.view.is_none() {
            self.view = Some(self.db.begin_read()?.open_table(TABLE)?);
        }
        Ok(self.view.as_ref().expect("it has just been made"))
    }
}

impl Engine for Redb {
    const IS_PERSISTENT: bool = true;

    fn open(config: &Config) -> Outcome<Self> {
        let db = Database::builder()
            .set_cache_size(config.cache_bytes as usize)
            .create(config.dir.join(format!("{}.redb", TABLE.name())))?;
        let mut store = Self { db, waiting: Vec::with_capacity(BATCH), view: None };
        // So that the table is there to be read.
        store.apply(Durability::Immediate)?;
        Ok(store)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.add(Change::Put(key.into(), value.into()))
    }

    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Outcome<bool> {
        let value = self.view()?.get(key)?;
        Ok(value.map(|value| found(value.value())).is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<bool> {
        self.add(Change::Delete(key.into()))?;
        Ok(true)
    }

    fn scan(&mut self, mut each: impl FnMut(&[u8], &[u8])) -> Outcome<()> {
        for record in self.view()?.iter()? {
            let (key, value) = record?;
            each(key.value(), value.value());
        }
        Ok(())
    }

    fn sync(&mut self) -> Outcome<()> {
        self.apply(Durability::Immediate)
    }

    fn close(mut self) -> Outcome<()> {
        self.apply(Durability::Immediate)
    }

    fn settle(&mut self) -> Outcome<()> {
        self.apply(Durability::None)
    }

    fn transact(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        mut found: impl FnMut(usize, &[u8]),
    ) -> Outcome<bool> {
        self.apply(Durability::None)?;
        self.view = None;
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(Durability::None)?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (i, &(key, value)) in pairs.iter().enumerate() {
                if let Some(old) = table.get(key)? {
                    found(i, old.value());
                }
                table.insert(key, value)?;
            }
        }
        transaction.commit()?;
        Ok(true)
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(self)
    }
}

impl Shared for Redb {
    fn put_durable(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let transaction = self.db.begin_write()?;
        transaction.open_table(TABLE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(Durability::None)?;
        transaction.open_table(TABLE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        let value = self.db.begin_read()?.open_table(TABLE)?.get(key)?;
        Ok(value.map(|value| found(value.value())).is_some())
    }
}
