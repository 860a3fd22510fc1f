//! sled, a lock-free B-tree over a log.

use crate::{Config, Engine, Outcome, Shared};
use sled::{Db, Mode};

/// The store as an engine of the race.
pub struct Sled(Db);

impl Engine for Sled {
    const IS_PERSISTENT: bool = true;

    fn open(config: &Config) -> Outcome<Self> {
        let db = sled::Config::new()
            .path(config.dir.join("sled"))
            .cache_capacity(config.cache_bytes)
            .mode(Mode::HighThroughput)
            .flush_every_ms(None)
            .open()?;
        Ok(Self(db))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.0.insert(key, value)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.0.get(key)?.map(|value| found(&value)).is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<bool> {
        Ok(self.0.remove(key)?.is_some())
    }

    fn scan(&mut self, mut each: impl FnMut(&[u8], &[u8])) -> Outcome<()> {
        for record in &*self.0 {
            let (key, value) = record?;
            each(&key, &value);
        }
        Ok(())
    }

    fn sync(&mut self) -> Outcome<()> {
        self.0.flush()?;
        Ok(())
    }

    fn close(mut self) -> Outcome<()> {
        self.sync()
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(self)
    }
}

impl Shared for Sled {
    fn put_durable(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.0.insert(key, value)?;
        self.0.flush()?;
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.0.insert(key, value)?;
        Ok(())
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.0.get(key)?.map(|value| found(&value)).is_some())
    }
}
