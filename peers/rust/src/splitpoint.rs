//! Splitpoint, in a file and in memory.

use std::marker::PhantomData;

use splitpoint::{Db, Durability, Options, Sharing};

use crate::{Beside, Config, Engine, Outcome, Shared};

/// How the store is opened.
pub trait Opened: Sync {
    /// In a file, or in memory only.
    const IS_PERSISTENT: bool;

    fn open(config: &Config) -> Outcome<Db>;
}

/// A file, as `Db::open` makes it: nothing is tuned, and the number of records is not told.
#[derive(Debug)]
pub struct InFile;

impl Opened for InFile {
    const IS_PERSISTENT: bool = true;

    fn open(config: &Config) -> Outcome<Db> {
        Ok(Db::open(config.dir.join("splitpoint.spt"))?)
    }
}

/// Memory, as `Db::in_memory` makes it.
#[derive(Debug)]
pub struct InMemory;

impl Opened for InMemory {
    const IS_PERSISTENT: bool = false;

    fn open(_: &Config) -> Outcome<Db> {
        Ok(Db::in_memory()?)
    }
}

/// Splitpoint as an engine of the race.
pub struct Store<O> {
    db: Db,
    how: PhantomData<O>,
}

impl<O: Opened> Engine for Store<O> {
    const IS_PERSISTENT: bool = O::IS_PERSISTENT;

    fn open(config: &Config) -> Outcome<Self> {
        Ok(Self { db: O::open(config)?, how: PhantomData })
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.db.put(key, value)?)
    }

    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.db.get(key)?.as_deref().map(&mut found).is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<bool> {
        Ok(self.db.delete(key)?)
    }

    fn scan(&mut self, mut each: impl FnMut(&[u8], &[u8])) -> Outcome<()> {
        for record in self.db.scan()? {
            let record = record?;
            each(&record.key, &record.value);
        }
        Ok(())
    }

    fn sync(&mut self) -> Outcome<()> {
        Ok(self.db.sync()?)
    }

    fn close(self) -> Outcome<()> {
        self.db.close()?;
        Ok(())
    }

    fn get_many(&mut self, keys: &[&[u8]], mut found: impl FnMut(usize, &[u8])) -> Outcome<bool> {
        for (i, value) in self.db.get_many(keys)?.iter().enumerate() {
            if let Some(value) = value {
                found(i, value);
            }
        }
        Ok(true)
    }

    fn transact(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        mut found: impl FnMut(usize, &[u8]),
    ) -> Outcome<bool> {
        let mut transaction = self.db.begin()?;
        for (i, (key, value)) in pairs.iter().enumerate() {
            if let Some(old) = transaction.get(key)? {
                found(i, &old);
            }
            transaction.put(key, value)?;
        }
        transaction.commit()?;
        Ok(true)
    }

    fn open_beside(config: &Config, beside: Beside) -> Outcome<Option<Self>> {
        if !O::IS_PERSISTENT {
            return Ok(None);
        }
        let options = match beside {
            Beside::Reads => Options::new().read_only(),
            Beside::WritesAlone => Options::new(),
            Beside::WritesByTurns => Options::new().sharing(Sharing::Shared),
        };
        let db = options.open(config.dir.join("splitpoint.spt"))?;
        Ok(Some(Self { db, how: PhantomData }))
    }

    fn shared(&self) -> Option<&dyn Shared> {
        O::IS_PERSISTENT.then_some(self as &dyn Shared)
    }
}

impl<O: Opened> Shared for Store<O> {
    fn put_durable(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.db.put_with(key, value, Durability::Sync)?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.db.put(key, value)?)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.db.get(key)?.as_deref().map(found).is_some())
    }
}
