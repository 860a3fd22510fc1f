//! fjall, a log-structured merge tree.

use crate::{Config, Engine, Outcome, Shared};
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

/// The store as an engine of the race.
pub struct Fjall {
    db: Database,
    records: Keyspace,
}

impl Engine for Fjall {
    const IS_PERSISTENT: bool = true;

    fn open(config: &Config) -> Outcome<Self> {
        let path = config.dir.join("fjall");
        let db = Database::builder(path).cache_size(config.cache_bytes).open()?;
        let none = CompressionPolicy::all(CompressionType::None);
        let options =
            || KeyspaceCreateOptions::default().data_block_compression_policy(none.clone());
        let records = db.keyspace("records", options)?;
        Ok(Self { db, records })
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.records.insert(key, value)?)
    }

    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.records.get(key)?.map(|value| found(&value)).is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<bool> {
        // It does not tell whether the key was there.
        self.records.remove(key)?;
        Ok(true)
    }

    fn scan(&mut self, mut each: impl FnMut(&[u8], &[u8])) -> Outcome<()> {
        for record in self.records.iter() {
            let (key, value) = record.into_inner()?;
            each(&key, &value);
        }
        Ok(())
    }

    fn sync(&mut self) -> Outcome<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }

    fn close(mut self) -> Outcome<()> {
        self.sync()
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(self)
    }
}

impl Shared for Fjall {
    fn put_durable(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.records.insert(key, value)?;
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.records.insert(key, value)?)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.records.get(key)?.map(|value| found(&value)).is_some())
    }
}
